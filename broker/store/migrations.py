"""Bringing the schema up, and telling whether it is up."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg.errors import UndefinedTable
from sqlalchemy import make_url

from broker.store.database import Connection


def _directory() -> Path:
    shipped = Path(str(files("broker").joinpath("_shipped", "migrations")))
    if shipped.is_dir():
        return shipped
    return Path(__file__).parents[2] / "migrations"  # a checkout has them beside the package


def _config(database_url: str = "") -> Config:
    config = Config()
    config.set_main_option("script_location", str(_directory()))
    if database_url:
        url = make_url(database_url).set(drivername="postgresql+psycopg")
        config.attributes["database_url"] = url
    return config


@cache
def head_revision() -> str:
    """The revision that this broker needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
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


def upgrade(database_url: str) -> None:
    """Bring the schema to head_revision(); safe to run by several starters at once (migrations/env.py locks)."""
    command.upgrade(_config(database_url), "head")
