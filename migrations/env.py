"""Runs migrations: one transaction a revision, one starter at a time, never waiting long for a lock."""

import os

import psycopg
from alembic import context
from psycopg import errors, sql
from sqlalchemy import create_engine, pool

from broker.db.database_url import DEFAULT_SCHEMA
from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.installations import VERSION_TABLE
from broker.db.schema.migration_lock import lock_migrations
from broker.db.schema.migration_waits import APPLICATION_NAME, MigrationUnderWay, Patience
from broker.db.schema.running_brokers import refuse_older_brokers
from broker.db.schema.tables import metadata

reported = context.config.attributes
schema = reported.get("schema", DEFAULT_SCHEMA)


def connect():
    url = reported.get("database_url") or os.environ["DATABASE_URL"]
    seconds = reported.get("lock_seconds", Patience().lock_seconds)
    return psycopg.connect(
        **connection_parameters(
            url,
            schema=schema,
            application_name=APPLICATION_NAME,
            settings={"lock_timeout": f"{seconds * 1000:.0f}ms"},
        )
    )


def begin(holder):
    """Takes the migration lock for as long as the transaction of `holder` is open.

    Makes the schema and its version table, which is what is locked, if they are missing.
    """
    try:
        make_version_table(holder)
    except (errors.DuplicateSchema, errors.DuplicateTable, errors.UniqueViolation) as error:
        raise MigrationUnderWay from error  # another process has made it in this moment
    lock_migrations(holder, schema)


def make_version_table(session):
    # CREATE SCHEMA IF NOT EXISTS needs the right to make one even if it is there.
    [there] = session.execute("SELECT to_regnamespace(%s) IS NOT NULL", [schema]).fetchone()
    if not there:
        session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    table = sql.Identifier(schema, VERSION_TABLE)
    [there] = session.execute("SELECT to_regclass(%s) IS NOT NULL", [table.as_string(session)]).fetchone()
    if not there:
        session.execute(
            sql.SQL("CREATE TABLE {} (version_num varchar(32) CONSTRAINT {} PRIMARY KEY)").format(
                table, sql.Identifier(f"{VERSION_TABLE}_pkc")
            )
        )
    session.commit()


def refuse_brokers(*, ctx, step, **_):
    """A revision that takes something away is undone while a broker runs that needs it, or could begin to."""
    refuse_older_brokers(ctx.connection.connection.driver_connection, schema, step.up_revision_id)


def include_object(object_, name, type_, reflected, compare_to):
    """Partitions of `messages` come and go; they are not part of the declared schema."""
    return not (type_ == "table" and reflected and name.startswith("messages_"))


def run() -> None:
    engine = create_engine("postgresql+psycopg://", poolclass=pool.NullPool, creator=connect)
    # The lock has a session of its own: the revisions are transactions by themselves, and an index that is built
    # concurrently does not wait for a session that is idle.
    with connect() as holder, engine.connect() as connection:
        begin(holder)
        context.configure(
            connection=connection,
            target_metadata=metadata,
            transaction_per_migration=True,
            include_object=include_object,
            on_version_apply=refuse_brokers,
        )
        with context.begin_transaction():
            context.run_migrations()


run()
