"""Moving the broker's tables from one schema of a database to another, in one transaction, while no broker runs.

It rewrites nothing: with its schema a table, its rows, indexes, sequences and rights stay what they are.
"""

from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql

from broker.store.driver.connection_parameters import connection_parameters, session_name
from broker.store.schema.application_functions import rebind
from broker.store.schema.installations import VERSION_TABLE
from broker.store.schema.migration_lock import lock_migrations
from broker.store.schema.migration_waits import APPLICATION_NAME, Patience, migrate_patiently
from broker.store.schema.revision_steps import SQL_FUNCTIONS
from broker.store.schema.tables import VIEWS, metadata

_Connection = psycopg.Connection[Any]

# A broker says once a second that it runs, and the others miss it after 4 s without.
_AT_WORK = timedelta(seconds=10)

# Partitions move one by one, also those that a janitor detached and had no time to drop.
_PARTITIONS = r"""
    SELECT c.relname
    FROM pg_class AS c
    JOIN pg_class AS parent ON parent.oid IN (
        'message_batches'::regclass, 'message_identities'::regclass, 'delivery_records'::regclass
    ) AND parent.relnamespace = c.relnamespace
    WHERE c.relkind = 'r' AND (
        c.relname ~ CASE parent.relname
            WHEN 'message_batches' THEN '^messages_'
            WHEN 'message_identities' THEN '^identities_'
            ELSE '^records_'
        END
        AND c.relname ~ '_\d{8}_\d{6}$' AND NOT c.relispartition
        OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid AND inhparent = parent.oid)
    )
    ORDER BY c.relname
"""
_SESSIONS = """
    SELECT pid, coalesce(host(client_addr), 'this machine')
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = %s
    ORDER BY pid
"""


class BrokersAtWork(Exception):
    """Brokers run on what should be moved; the message says which."""


def move(database_url: str, *, source: str, target: str, patience: Patience) -> None:
    """Move everything of the broker's from the schema `source` to `target`, which is made if it is not there.

    Raises BrokersAtWork, LockHeld, psycopg.Error; nothing has changed then.
    """
    parameters = connection_parameters(
        database_url,
        schema=source,
        application_name=APPLICATION_NAME,
        settings={"lock_timeout": f"{patience.lock_seconds * 1000:.0f}ms"},
    )

    def attempt() -> None:
        with psycopg.connect(**parameters) as connection, connection.transaction():
            be_alone(connection, source, target)
            _move_all(connection, target)
            rebind(connection, source=source, target=target)

    migrate_patiently(attempt, database_url, patience)


def be_alone(connection: _Connection, source: str, *others: str) -> None:
    """No other that migrates `source` or the others, no broker on `source`: until the transaction ends none can
    begin either.  Raises MigrationUnderWay, BrokersAtWork.
    """
    lock_migrations(connection, source, *others)
    refuse_brokers(connection, source)  # before any lock: it would only be in their way
    connection.execute("LOCK TABLE processes")
    refuse_brokers(connection, source)


def refuse_brokers(connection: _Connection, source: str) -> None:
    """Raises BrokersAtWork."""
    running = connection.execute(
        "SELECT count(*) FROM processes WHERE seen_at > clock_timestamp() - %s::interval", [_AT_WORK]
    ).fetchone()
    sessions = connection.execute(_SESSIONS, [session_name(source)]).fetchall()
    if running is None or not running[0]:
        return
    hosts = {host: [str(pid) for pid, at in sessions if at == host] for _, host in sessions}
    which = "; ".join(f"from {host}: sessions {', '.join(pids)}" for host, pids in hosts.items())
    raise BrokersAtWork(
        f"broker processes are at work on the schema {source}, {running[0]} of them ({which or 'not connected'}). "
        f"Stop them and try again; one that was killed is forgotten after {_AT_WORK.seconds} s"
    )


def _move_all(connection: _Connection, target: str) -> None:
    partitions = [name for (name,) in connection.execute(_PARTITIONS.encode()).fetchall()]
    tables = [VERSION_TABLE, *metadata.tables, *partitions]
    tables = [name for name in tables if _is_there(connection, "to_regclass", name)]
    locked = sql.SQL(", ").join(map(sql.Identifier, tables))
    connection.execute(sql.SQL("LOCK TABLE {}").format(locked))
    if not _is_there(connection, "to_regnamespace", target):
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(target)))
    for kind, names, find in (
        ("TABLE", tables, "to_regclass"),
        ("VIEW", VIEWS, "to_regclass"),
        ("FUNCTION", SQL_FUNCTIONS, "to_regproc"),
    ):
        for name in names:
            if _is_there(connection, find, name):
                statement = sql.SQL(f"ALTER {kind} {{}} SET SCHEMA {{}}")
                connection.execute(statement.format(sql.Identifier(name), sql.Identifier(target)))


def _is_there(connection: _Connection, find: str, name: str) -> bool:
    row = connection.execute(sql.SQL("SELECT {}(%s) IS NOT NULL").format(sql.Identifier(find)), [name]).fetchone()
    return row == (True,)
