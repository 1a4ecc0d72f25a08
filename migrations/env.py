"""Runs migrations: one transaction a revision, one starter at a time, never waiting long for a lock."""

import os

import psycopg
from alembic import context
from psycopg import sql
from sqlalchemy import create_engine, pool

from broker.domain.database_url import DEFAULT_SCHEMA
from broker.store.driver.advisory_locks import MIGRATING, lock_key
from broker.store.driver.connection_parameters import connection_parameters
from broker.store.schema.every_table import metadata
from broker.store.schema.migration_waits import APPLICATION_NAME, MigrationUnderWay, Patience

told = context.config.attributes
schema = told.get("schema", DEFAULT_SCHEMA)


def connect():
    url = told.get("database_url") or os.environ["DATABASE_URL"]
    seconds = told.get("lock_seconds", Patience().lock_seconds)
    return psycopg.connect(
        **connection_parameters(
            url,
            schema=schema,
            application_name=APPLICATION_NAME,
            settings={"lock_timeout": f"{seconds * 1000:.0f}ms"},
        )
    )


def begin(session):
    """Be the one who migrates, and have a schema to do it in."""
    # To wait for it in the database would hold up an index that is built concurrently by the one who has it.
    [locked] = session.execute(
        sql.SQL("SELECT pg_try_advisory_lock({})").format(lock_key(MIGRATING, schema))
    ).fetchone()
    if not locked:
        raise MigrationUnderWay
    # CREATE SCHEMA IF NOT EXISTS asks for the right to make one even if it is there.
    [there] = session.execute("SELECT to_regnamespace(%s) IS NOT NULL", [schema]).fetchone()
    if not there:
        session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    session.commit()


def include_object(object_, name, type_, reflected, compare_to):
    """Partitions of `messages` come and go; they are not part of the declared schema."""
    return not (type_ == "table" and reflected and name.startswith("messages_"))


def run() -> None:
    engine = create_engine("postgresql+psycopg://", poolclass=pool.NullPool, creator=connect)
    with engine.connect() as connection:
        begin(connection.connection.driver_connection)
        context.configure(
            connection=connection,
            target_metadata=metadata,
            transaction_per_migration=True,
            include_object=include_object,
        )
        with context.begin_transaction():
            context.run_migrations()


run()
