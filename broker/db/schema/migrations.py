"""Migrates the schema, by Alembic."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError

from broker.db.schema.distribution import CannotDistribute, distribute
from broker.db.schema.installations import check_may_make
from broker.db.schema.migration_waits import LockHeld, Patience, migrate_patiently
from broker.db.schema.running_brokers import BrokersAtWork
from broker.db.schema.schema_state import (
    DatabaseUnreachable,
    head_revision,
    inspect,
    migrations_directory,
    read_only_session,
    saying_why,
    why_not_served,
)
from broker.db.schema_revision import can_be_served, is_before_baseline


def _config(directory: Path | None = None, **attributes: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(directory or migrations_directory()))
    config.attributes.update(attributes)
    return config


def _head(config: Config) -> str:
    head = ScriptDirectory.from_config(config).get_current_head()
    assert head is not None
    return head


def upgrade(
    database_url: str, *, schema: str = "", directory: Path | None = None, patience: Patience | None = None
) -> str:
    """Bring the schema to head_revision(), or leave it if it is newer and can be served.  Returns what it is at.

    Safe beside brokers at work, and for several starters at once.  `schema`: as in `inspect`; it is made if it is
    not there.  `directory`: with other migrations than ours.  Raises DatabaseUnreachable.
    """
    patience = patience or Patience()
    state, head = inspect(database_url, schema), head_revision()
    if directory is None and state.revision is not None and can_be_served(state.revision, head):
        return state.revision
    if is_before_baseline(state.revision):
        raise DatabaseUnreachable(f"The database cannot be migrated: {why_not_served(state.revision)}")
    config = _config(directory, database_url=database_url, schema=state.schema, lock_seconds=patience.lock_seconds)
    with _saying_why("The database cannot be migrated"):
        if state.revision is None:
            with read_only_session(database_url) as connection:
                check_may_make(connection, state.schema)
        migrate_patiently(lambda: command.upgrade(config, "head"), database_url, patience)
    return _head(config)


def distribute_tables(database_url: str, *, schema: str = "", patience: Patience | None = None) -> int:
    """Distribute a schema's hot tables over the nodes of Citus, those that are not yet.  Returns how many.

    `schema`: as in `inspect`; it is at the head revision.  Raises DatabaseUnreachable.
    """
    with _saying_why("The tables cannot be distributed"):
        found = inspect(database_url, schema)
        return distribute(database_url, schema=found.schema, patience=patience or Patience())


@contextmanager
def _saying_why(what: str) -> Iterator[None]:
    """Raise DatabaseUnreachable for whatever can go wrong in the block."""
    try:
        with saying_why(what):
            yield
    except DBAPIError as error:
        raise DatabaseUnreachable(f"{what}: {error.orig}".strip()) from error
    except (CommandError, BrokersAtWork, CannotDistribute) as error:  # a revision of a newer broker
        raise DatabaseUnreachable(f"{what}: {error}".strip()) from error
    except LockHeld as error:
        raise DatabaseUnreachable(str(error)) from error
