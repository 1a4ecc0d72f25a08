"""Bringing the schema up, and telling whether it is up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from psycopg.errors import UndefinedTable
from sqlalchemy.exc import DBAPIError

from broker.domain.database_url import DEFAULT_SCHEMA, RELEASE_0_1_SCHEMA
from broker.domain.schema_revision import can_be_served, is_behind
from broker.store.driver.connection_parameters import connection_parameters
from broker.store.driver.database import Connection
from broker.store.schema.installations import SchemaUnusable, check_may_make, find_installation
from broker.store.schema.migration_waits import LockHeld, Patience, migrate_patiently
from broker.store.schema.schema_move import BrokersAtWork, move

MIN_SERVER_VERSION = 15


class DatabaseUnreachable(Exception):
    """The database cannot be connected to, or is not one that the broker can use; the message says why."""


class UrlUnusable(DatabaseUnreachable):
    """The database's URL makes no sense; nothing was tried."""


def _directory() -> Path:
    shipped = Path(str(files("broker").joinpath("_shipped", "migrations")))
    if shipped.is_dir():
        return shipped
    return Path(__file__).parents[3] / "migrations"  # a checkout has them beside the package


def _config(directory: Path | None = None, **attributes: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(directory or _directory()))
    config.attributes.update(attributes)
    return config


@cache
def head_revision() -> str:
    """The revision that this broker needs."""
    return _head(_config())


def _head(config: Config) -> str:
    head = ScriptDirectory.from_config(config).get_current_head()
    assert head is not None
    return head


async def current_revision(connection: Connection) -> str | None:
    """The revision that the schema is at; None if it has no tables of the broker."""
    try:
        cursor = await connection.execute(b"SELECT version_num FROM alembic_version")
    except UndefinedTable:
        return None
    row = await cursor.fetchone()
    return None if row is None else row[0]


def upgrade(
    database_url: str, *, schema: str = "", directory: Path | None = None, patience: Patience | None = None
) -> str:
    """Bring the schema to head_revision(), or leave it if it is newer and can be served.  Returns what it is at.

    Safe beside brokers at work, and for several starters at once.  `schema`: as in `inspect`; it is made if it is
    not there.  `directory`: with other migrations than ours.  Raises DatabaseUnreachable.
    """
    patience = patience or Patience()
    state, head = inspect(database_url, schema), head_revision()
    if directory is None and state.revision != head and can_be_served(state.revision, head):
        assert state.revision is not None
        return state.revision
    config = _config(directory, database_url=database_url, schema=state.schema, lock_seconds=patience.lock_seconds)
    with _saying_why("The database cannot be migrated"):
        if state.revision is None:
            with _session(database_url) as connection:
                check_may_make(connection, state.schema)
        migrate_patiently(lambda: command.upgrade(config, "head"), database_url, patience)
    return _head(config)


def move_schema(database_url: str, *, schema: str = "", patience: Patience | None = None) -> bool:
    """Move the tables that release 0.1.0 made to `schema` ("": the default).  Returns whether there were any.

    In one transaction, while no broker runs on them.  Raises DatabaseUnreachable.
    """
    target = schema or DEFAULT_SCHEMA
    if target == RELEASE_0_1_SCHEMA:
        raise DatabaseUnreachable(f"The tables cannot be moved: {target} is where release 0.1.0 made them.")
    with _saying_why("The tables cannot be moved"):
        with _session(database_url) as connection:
            there = find_installation(connection, target)
            if RELEASE_0_1_SCHEMA not in there.others:
                return False
            if there.revision is not None:
                raise SchemaUnusable(f"the schema {target} has tables of a broker already")
            at, head = find_installation(connection, RELEASE_0_1_SCHEMA).revision, head_revision()
            if at != head and not is_behind(at, head):
                raise SchemaUnusable(f"they are at {at}, of which this version, with {head}, does not know all")
            check_may_make(connection, target)
        move(database_url, source=RELEASE_0_1_SCHEMA, target=target, patience=patience or Patience())
    return True


def why_not_served(revision: str | None) -> str:
    """Why this broker cannot serve a database whose schema is at `revision` ("": it can)."""
    head = head_revision()
    if is_behind(revision, head):
        return f"the database's schema is at {revision or 'nothing'}, {head} is needed: run `broker migrate`"
    if not can_be_served(revision, head):
        return f"the database's schema is at {revision}, too new for this broker, which knows {head}"
    return ""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What `inspect` found: the server's major version, the schema that has the broker's tables, or is to have
    them, and their revision (None: there are none).

    `remark` is what else an operator should know of, a sentence ("": nothing).
    """

    server_major_version: int
    schema: str
    revision: str | None
    remark: str = ""


def inspect(database_url: str, schema: str = "") -> DatabaseState:
    """Look at a database before it is used.

    `schema` ("": the default one, or `public` if release 0.1.0 made its tables there) is where the broker's tables
    should be.  Raises DatabaseUnreachable.
    """
    with _saying_why("The database cannot be used"), _session(database_url) as connection:
        postgres = connection.info.server_version // 10_000
        if postgres < MIN_SERVER_VERSION:
            raise DatabaseUnreachable(
                f"PostgreSQL {postgres} is too old: the broker needs {MIN_SERVER_VERSION} or newer"
            )
        found = find_installation(connection, schema)
        remark = ""
        if found.schema == RELEASE_0_1_SCHEMA and not schema:
            remark = (
                "The tables are in the schema public, where release 0.1.0 made them; "
                f"`broker migrate --move-schema` moves them to {DEFAULT_SCHEMA} while no broker runs."
            )
        elif found.others:
            remark = f"Tables of another broker are in: {', '.join(found.others)} (--database-schema)."
        return DatabaseState(postgres, found.schema, found.revision, remark)


@contextmanager
def _session(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """One that finds nothing by a search path."""
    parameters = connection_parameters(database_url, schema="pg_catalog")
    with psycopg.connect(autocommit=True, **parameters) as connection:
        yield connection


@contextmanager
def _saying_why(what: str) -> Iterator[None]:
    """Raise DatabaseUnreachable for whatever can go wrong in the block."""
    try:
        yield
    except DBAPIError as error:
        raise DatabaseUnreachable(f"{what}: {error.orig}".strip()) from error
    except ValueError as error:  # the URL
        raise UrlUnusable(f"{what} by its URL: {error}") from None
    except (psycopg.Error, CommandError, SchemaUnusable, BrokersAtWork) as error:  # a revision of a newer broker
        raise DatabaseUnreachable(f"{what}: {error}".strip()) from error
    except LockHeld as error:
        raise DatabaseUnreachable(str(error)) from error
