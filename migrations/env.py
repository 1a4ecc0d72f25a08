"""Runs migrations: one transaction a revision, one starter at a time, never waiting long for a lock."""

import os

import psycopg
from alembic import context
from sqlalchemy import create_engine, pool, text

from broker.store.connection_parameters import RELEASE_0_1_SCHEMA, connection_parameters
from broker.store.migration_waits import APPLICATION_NAME, LOCK, MigrationUnderWay, Patience
from broker.store.tables import metadata


def _connect():
    url = context.config.attributes.get("database_url") or os.environ["DATABASE_URL"]
    return psycopg.connect(
        **connection_parameters(url, schema=RELEASE_0_1_SCHEMA, application_name=APPLICATION_NAME)
    )


def include_object(object_, name, type_, reflected, compare_to):
    """Partitions of `messages` come and go; they are not part of the declared schema."""
    return not (type_ == "table" and reflected and name.startswith("messages_"))


def run() -> None:
    seconds = context.config.attributes.get("lock_seconds", Patience().lock_seconds)
    engine = create_engine("postgresql+psycopg://", poolclass=pool.NullPool, creator=_connect)
    with engine.connect() as connection:
        connection.execute(text(f"SET lock_timeout = '{seconds * 1000:.0f}ms'"))
        # To wait for it in the database would hold up an index that is built concurrently by the one who has it.
        if not connection.scalar(text(f"SELECT pg_try_advisory_lock({LOCK})")):
            raise MigrationUnderWay
        connection.commit()
        context.configure(
            connection=connection,
            target_metadata=metadata,
            transaction_per_migration=True,
            include_object=include_object,
        )
        with context.begin_transaction():
            context.run_migrations()
        connection.execute(text(f"SELECT pg_advisory_unlock({LOCK})"))
        connection.commit()


run()
