"""Checks whether a URL leads to PostgreSQL itself, or to a connection pool that the broker cannot use.

A broker's session has settings, prepared statements and LISTEN.  A pool that assigns another session of the server
to each transaction (PgBouncer, pool_mode=transaction) loses all of them without an error, and the brokers would
miss each other's notifications.
"""

from collections.abc import Mapping
from typing import Any

import psycopg

_ROUNDS = 10  # in a single round, another client may use the session that would show it
_BACKEND = "SELECT pg_backend_pid()"
_INSTEAD = "give the URL of PostgreSQL itself (the broker has pools of its own)"


class PoolInBetween(Exception):
    """The message says what the pool does, and what to do."""


def connect_directly(parameters: Mapping[str, Any]) -> psycopg.Connection[Any]:
    """Opens a session.  Raises PoolInBetween if a pool rejects its settings."""
    try:
        return psycopg.connect(autocommit=True, **parameters)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" not in str(error):  # PgBouncer's words
            raise
        raise PoolInBetween(
            "something between the broker and PostgreSQL rejects the session settings (options) of a connection, "
            f"as PgBouncer does: {_INSTEAD}"
        ) from error


def refuse_pools(connection: psycopg.Connection[Any], parameters: Mapping[str, Any]) -> None:
    """`connection` was made with `parameters`, so that its search path is pg_catalog.  Raises PoolInBetween."""
    if connection.execute("SHOW search_path").fetchone() != ("pg_catalog",):
        raise PoolInBetween(
            "something between the broker and PostgreSQL drops the session settings (options) of a connection, "
            f"as PgBouncer does with ignore_startup_parameters: {_INSTEAD}"
        )
    if not _is_backend_of_key(connection) and _is_shared(connection, parameters):
        raise PoolInBetween(
            "something between the broker and PostgreSQL gives each transaction another session of the server, "
            "as PgBouncer does with pool_mode = transaction: settings, prepared statements and LISTEN would be "
            f"lost: {_INSTEAD}"
        )


def _is_backend_of_key(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server's process is the one that was told for cancelling.  A pool tells a number of its own."""
    return _backend(connection) == connection.info.backend_pid


def _is_shared(connection: psycopg.Connection[Any], parameters: Mapping[str, Any]) -> bool:
    """Whether a transaction of another session gets the server's process that this one just had, or this one gets
    another while that transaction holds it.
    """
    first = _backend(connection)
    with psycopg.connect(**parameters) as other:
        for _ in range(_ROUNDS):
            with other.transaction():
                if _backend(other) == first or _backend(connection) != first:
                    return True
            if _backend(connection) != first:
                return True
    return False


def _backend(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(_BACKEND, prepare=False).fetchone()
    assert row is not None
    return int(row[0])
