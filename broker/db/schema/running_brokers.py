"""The broker processes that use a schema, for operations that require that there are none.

A process writes its heartbeat into `processes` once a second.  Sessions alone prove nothing, because any program
can call itself `broker`.
"""

from datetime import timedelta
from typing import Any

import psycopg

from broker.db.driver.connection_parameters import session_name
from broker.db.schema.migration_lock import lock_migrations
from broker.db.schema_revision import can_be_served, takes_away

_Connection = psycopg.Connection[Any]

# A process writes a heartbeat once a second, and the others miss it after 4 s without one.
_ALIVE = timedelta(seconds=10)

_HEARTBEATS = "SELECT version FROM processes WHERE seen_at > clock_timestamp() - %s::interval"
_SESSIONS = """
    SELECT pid, coalesce(host(client_addr), 'this machine')
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = %s
    ORDER BY pid
"""


class BrokersAtWork(Exception):
    """Brokers run on what should be changed; the message says which."""


def be_alone(connection: _Connection, schema: str) -> None:
    """Makes sure that no other session migrates the schema and no broker runs on it, until the transaction ends.

    Raises MigrationUnderWay, BrokersAtWork.
    """
    lock_migrations(connection, schema)
    refuse_brokers(connection, schema)  # before any lock, which would only block them
    connection.execute("LOCK TABLE processes")
    refuse_brokers(connection, schema)


def refuse_brokers(connection: _Connection, schema: str) -> None:
    """Raises BrokersAtWork if any broker runs on the schema."""
    if versions := _running(connection):
        raise BrokersAtWork(
            f"broker processes are at work on the schema {schema}, {len(versions)} of them "
            f"({_which(connection, schema)}). {_REMEDY}"
        )


def refuse_older_brokers(connection: _Connection, schema: str, revision: str) -> None:
    """Raises BrokersAtWork if a broker runs on the schema that could not serve it once it is at `revision`.

    None can write its first heartbeat until the transaction ends.
    """
    if not takes_away(revision):
        return
    connection.execute("LOCK TABLE processes IN SHARE MODE")
    versions = [version for version in _running(connection) if not can_be_served(revision, version)]
    if versions:
        raise BrokersAtWork(
            f"{revision} takes away what {len(versions)} of the broker processes at work on the schema {schema} "
            f"need, which know {min(versions)} ({_which(connection, schema)}). {_REMEDY}"
        )


_REMEDY = f"Stop them and try again; one that was killed is forgotten after {_ALIVE.seconds} s"


def _running(connection: _Connection) -> list[str]:
    """The schema that each process knows."""
    return [version for (version,) in connection.execute(_HEARTBEATS, [_ALIVE]).fetchall()]


def _which(connection: _Connection, schema: str) -> str:
    sessions = connection.execute(_SESSIONS, [session_name(schema)]).fetchall()
    hosts = {host: [str(pid) for pid, at in sessions if at == host] for _, host in sessions}
    return "; ".join(f"from {host}: sessions {', '.join(pids)}" for host, pids in hosts.items()) or "not connected"
