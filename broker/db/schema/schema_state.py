"""Reads the revision of a database's schema, and checks whether this broker can serve it.

Every process of a broker does so when it starts, without Alembic, which only migrations need.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import UndefinedTable

from broker.db.citus.citus import is_distributed, is_worker, why_not_served_distributed
from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.fitness import ConnectionBound, connection_bound, why_unfit
from broker.db.schema.installations import SchemaUnusable, find_installation
from broker.db.schema.pooler import PoolInBetween, connect_directly, refuse_pools
from broker.db.schema_revision import can_be_served, is_before_baseline, is_behind
from broker.model.errors import Unavailable

MIN_SERVER_VERSION = 15

_MIGRATION = re.compile(
    r"(0001_baseline|\d{4}_min_\d{4}(?=_.))(?:_.+)?\.py"
)  # the file name of a revision; alembic.ini defines it

_SCHEMAS_OF_OTHERS = """
    SELECT nspname FROM pg_catalog.pg_namespace
    WHERE NOT pg_has_role(nspowner, 'USAGE') AND nspname !~ '^(pg_|information_schema$)'
    ORDER BY nspname
"""


class DatabaseUnreachable(Exception):
    """The database cannot be connected to, or is not one that the broker can use; the message says why."""


class DatabaseUnfit(DatabaseUnreachable):
    """The database answers, and no broker can work in it as it is; the message has the remedy."""


class UrlUnusable(DatabaseUnreachable):
    """The database's URL makes no sense; nothing was tried."""


def migrations_directory() -> Path:
    """Returns the directory of Alembic's scripts."""
    shipped = Path(str(files("broker").joinpath("_shipped", "migrations")))
    if shipped.is_dir():
        return shipped
    return Path(__file__).parents[3] / "migrations"  # a checkout has them beside the package


@cache
def head_revision() -> str:
    """The revision that this broker needs: the last of those that it has."""
    names = (path.name for path in (migrations_directory() / "versions").iterdir())
    return max(match[1] for match in map(_MIGRATION.fullmatch, names) if match)


async def current_revision(connection: psycopg.AsyncConnection[Any]) -> str | None:
    """The revision that the schema is at; None if it has no tables of the broker."""
    try:
        cursor = await connection.execute(b"SELECT version_num FROM alembic_version")
    except UndefinedTable:
        return None
    row = await cursor.fetchone()
    return None if row is None else row[0]


def why_not_served(revision: str | None) -> str:
    """Why this broker cannot serve a database whose schema is at `revision` ("": it can)."""
    head = head_revision()
    if is_before_baseline(revision):
        return (
            f"the database's schema is at {revision}, which a build from before the first release made, and no "
            "version migrates it: use an empty database, or another --database-schema or --data-dir; to keep the "
            "messages, let that build deliver them, or export them with it"
        )
    if is_behind(revision, head):
        return f"the database's schema is at {revision or 'nothing'}, {head} is needed: run `broker migrate`"
    if not can_be_served(revision, head):
        return f"the database's schema is at {revision}, too new for this broker, which knows {head}"
    return ""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The state of a database, as `inspect` found it.

    It has the server's major version, the schema that has or will have the broker's tables, and their revision
    (None: there are none).  `bound`: how many connections the server allows.  `remark`: a sentence with anything
    else that an operator should know ("": nothing).  `problem`: why no broker can serve the database as it is,
    whatever its revision ("": nothing).
    """

    server_major_version: int
    schema: str
    revision: str | None
    bound: ConnectionBound
    remark: str = ""
    problem: str = ""


def inspect(database_url: str, schema: str = "") -> DatabaseState:
    """Look at a database before it is used.

    `schema` ("": the default one) is where the broker's tables should be.  Raises DatabaseUnreachable.
    """
    with saying_why("The database cannot be used"), read_only_session(database_url) as connection:
        if is_worker(connection):
            raise DatabaseUnreachable("this is a worker of a Citus cluster: give the URL of its coordinator")
        found = find_installation(connection, schema)
        if unfit := why_unfit(connection, found.schema):
            raise DatabaseUnfit(f"The database cannot be used: {unfit}")
        remark = ""
        if found.others:
            remark = f"Tables of another broker are in: {', '.join(found.others)} (--database-schema)."
        problem = why_not_served_distributed(connection, found.schema)
        if not problem and is_distributed(connection, found.schema):
            from broker.db.schema.citus_probe import why_not_relied_on  # slow to import, and rarely needed

            problem = why_not_relied_on(connection, database_url, found.schema)
        bound = connection_bound(connection)
        return DatabaseState(_major_version(connection), found.schema, found.revision, bound, remark, problem)


@contextmanager
def read_only_session(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Opens a session that only reads, and finds nothing by a search path.

    Raises DatabaseUnreachable if the server is too old, PoolInBetween if sessions are not as brokers need them.
    """
    parameters = connection_parameters(database_url, schema="pg_catalog")
    with connect_directly(parameters) as connection:
        version = _major_version(connection)
        if version < MIN_SERVER_VERSION:
            raise DatabaseUnreachable(
                f"PostgreSQL {version} is too old: the broker needs {MIN_SERVER_VERSION} or newer"
            )
        refuse_pools(connection, parameters)
        yield connection


def schemas_of_other_roles(database_url: str) -> list[str]:
    """The schemas, except PostgreSQL's own, whose owner this role is not.  Raises DatabaseUnreachable."""
    with saying_why("The database cannot be read"), read_only_session(database_url) as connection:
        return [schema for (schema,) in connection.execute(_SCHEMAS_OF_OTHERS).fetchall()]


def _major_version(connection: psycopg.Connection[Any]) -> int:
    return connection.info.server_version // 10_000


@contextmanager
def saying_why(what: str) -> Iterator[None]:
    """Raise DatabaseUnreachable for what can go wrong in the block, which looks at a database."""
    try:
        yield
    except ValueError as error:  # the URL
        raise UrlUnusable(f"{what} by its URL: {error}") from None
    except (psycopg.Error, SchemaUnusable, PoolInBetween, Unavailable) as error:
        raise DatabaseUnreachable(f"{what}: {error}".strip()) from error
