"""Bringing the schema up, and telling whether it is up."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from psycopg.errors import UndefinedTable
from sqlalchemy.exc import DBAPIError

from broker.domain.schema_revision import can_be_served, is_behind
from broker.store.connection_parameters import RELEASE_0_1_SCHEMA, connection_parameters
from broker.store.database import Connection
from broker.store.migration_waits import LockHeld, Patience, migrate_patiently


class DatabaseUnreachable(Exception):
    """The database cannot be connected to, or is not one that the broker can use; the message says why."""


def _directory() -> Path:
    shipped = Path(str(files("broker").joinpath("_shipped", "migrations")))
    if shipped.is_dir():
        return shipped
    return Path(__file__).parents[2] / "migrations"  # a checkout has them beside the package


def _config(database_url: str = "", directory: Path | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(directory or _directory()))
    config.attributes["database_url"] = database_url
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
    """The revision that the database is at; None if it has no schema of the broker."""
    try:
        cursor = await connection.execute(b"SELECT version_num FROM alembic_version")
    except UndefinedTable:
        return None
    row = await cursor.fetchone()
    return None if row is None else row[0]


def upgrade(database_url: str, *, directory: Path | None = None, patience: Patience | None = None) -> str:
    """Bring the schema to head_revision(), or leave it if it is newer and can be served.  Returns what it is at.

    Safe beside brokers at work, and for several starters at once.  `directory`: with other migrations than ours.
    Raises DatabaseUnreachable.
    """
    patience = patience or Patience()
    newer = _newer_revision(database_url)
    if directory is None and newer:
        return newer
    config = _config(database_url, directory)
    config.attributes["lock_seconds"] = patience.lock_seconds
    try:
        migrate_patiently(lambda: command.upgrade(config, "head"), database_url, patience)
    except DBAPIError as error:
        raise DatabaseUnreachable(f"The database cannot be migrated: {error.orig}".strip()) from error
    except CommandError as error:  # a revision from a newer broker
        raise DatabaseUnreachable(f"The database cannot be migrated: {error}") from error
    except LockHeld as error:
        raise DatabaseUnreachable(str(error)) from error
    return _head(config)


def _newer_revision(database_url: str) -> str | None:
    """That of the database, if it needs no migration of ours although it is another."""
    at, head = inspect(database_url).revision, head_revision()
    return at if at != head and can_be_served(at, head) else None


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
    """What `inspect` found: the server's major version, and the schema's revision (None: no schema)."""

    server_major_version: int
    revision: str | None


def inspect(database_url: str) -> DatabaseState:
    """Look at a database before it is used.  Raises DatabaseUnreachable."""
    try:
        with psycopg.connect(**connection_parameters(database_url, schema=RELEASE_0_1_SCHEMA)) as connection:
            found = connection.execute("SELECT to_regclass('alembic_version')").fetchone()
            row = found and found[0] and connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return DatabaseState(connection.info.server_version // 10_000, row[0] if row else None)
    except psycopg.Error as error:
        raise DatabaseUnreachable(f"The database cannot be used: {error}".strip()) from error
    except ValueError as error:
        raise DatabaseUnreachable(f"The database's URL cannot be used: {error}") from None
