"""The meaning of PostgreSQL's errors for callers: one table for SQLSTATEs, and one for connections that fail.

The messages describe the condition.  They quote PostgreSQL's own messages only if these concern the server as a
whole, because other errors may contain values, passwords and addresses.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from broker.db.citus.engine import is_lost_node
from broker.model.errors import Aborted, BrokerError, Internal, InvalidArgument, Unavailable, Unimplemented


class PoolExhausted(psycopg.OperationalError):
    """No connection of a pool came free in time."""


ALL_IN_USE = "All connections of this broker to the database are in use; try again."
_LOST = "The connection to the database was lost; try again."
_STOPS = "The database is starting or shutting down; try again."

# SQLSTATE (or its class) -> the error for the caller.  Unavailable: the same call may succeed when it is repeated.
ERRORS: tuple[tuple[type[psycopg.Error], type[BrokerError], str], ...] = (
    (pg.DeadlockDetected, Aborted, "The call met a concurrent change; try it again."),
    (pg.UniqueViolation, Aborted, "The call met a concurrent change; try it again."),
    (pg.SerializationFailure, Aborted, "The call met a concurrent change; try it again."),
    (pg.LockNotAvailable, Unavailable, "The resource is busy; try again."),
    (pg.QueryCanceled, Unavailable, "The database took too long; try again."),
    (pg.ReadOnlySqlTransaction, Unavailable, "The database is read-only now; try again."),
    (pg.DiskFull, Unavailable, "The database has no room left; try again later."),
    (pg.OutOfMemory, Unavailable, "The database is out of memory; try again."),
    (pg.TooManyConnections, Unavailable, "The database has no connection left for the broker; try again."),
    (pg.AdminShutdown, Unavailable, "The database ended the connection; try again."),
    (pg.CrashShutdown, Unavailable, "The database crashed and recovers; try again."),
    (pg.CannotConnectNow, Unavailable, _STOPS),
    (pg.UntranslatableCharacter, InvalidArgument, "A text has a character that cannot be stored."),
    (pg.CharacterNotInRepertoire, InvalidArgument, "A text has a character that cannot be stored."),
    (pg.ProgramLimitExceeded, InvalidArgument, "A value is too large to be stored."),
    (pg.InsufficientPrivilege, Internal, "The broker's role lacks a privilege in the database."),
    (PoolExhausted, Unavailable, ALL_IN_USE),
)

# Messages of connections that could not be made, or broke: libpq has no SQLSTATE for these.
_FULL = re.compile(
    r"too many connections for (role|database) \"[^\"]*\""
    r"|sorry, too many clients already"
    r"|remaining connection slots are reserved[^\n]*"
)
_CONNECTIONS: tuple[tuple[str, str], ...] = (
    (r"the database system is |the server is going away", _STOPS),
    (
        r"authentication failed|no pg_hba\.conf entry|(role|database) \"[^\"]*\" does not exist"
        r"|not permitted to log in|permission denied for database|no password supplied",
        "The database does not let the broker in; the broker's log has its reason.",
    ),
    (
        r"session is (not )?read-only|server is (not )?in hot standby mode",
        "The database is a standby, or read-only; try again.",
    ),
    (
        r"certificate|SSL error|sslmode|server does not support SSL",
        "TLS to the database failed; the broker's log has the reason.",
    ),
    (
        r"did not answer|timeout expired|timed out",
        "The database did not answer in time; try again.",
    ),
    (
        r"Connection refused|No such file|could not translate|failed to resolve|Name or service|[Uu]nreachable"
        r"|No route",
        "The database cannot be reached; try again.",
    ),
    (
        r"closed the connection unexpectedly|connection (to server )?was lost|terminating connection|SSL SYSCALL"
        r"|consuming input failed|connection (is|was) closed|reset by peer|connections are lost|Broken pipe",
        _LOST,
    ),
)
_CONNECTION_FAULT = "The connection to the database failed, for a reason that the broker's log has; try again."


def is_full(error: BaseException) -> bool:
    """Whether the server refused a connection because it, the database or the role has as many as it may have."""
    return isinstance(error, pg.TooManyConnections) or _FULL.search(str(error)) is not None


def translate(error: psycopg.Error) -> BrokerError:
    """Translates an error of PostgreSQL into a BrokerError; Internal for one that was not foreseen."""
    if is_lost_node(error):
        return Unavailable("A node of the database went away; try again.")
    for cause, meaning, message in ERRORS:
        if isinstance(error, cause):
            return meaning(message)
    if isinstance(error, pg.FeatureNotSupported):
        said = f": {error.diag.message_primary}" if error.diag.message_primary else ""
        return Unimplemented(f"The database does not support a statement of the broker{said}.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(_of_connection(error))
    name = error.sqlstate or type(error).__name__
    return Internal(f"The database refused a statement of the broker ({name}), whose log has the reason.")


def _of_connection(error: psycopg.Error) -> str:
    text = str(error)
    if full := _FULL.search(text):
        return f"The database has no connection left for the broker ({full[0].strip()}); try again."
    for pattern, message in _CONNECTIONS:
        if re.search(pattern, text):
            return message
    if error.sqlstate:
        return f"The database failed ({error.sqlstate}), for a reason that the broker's log has; try again."
    return _CONNECTION_FAULT


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the BrokerError that stands for an error of PostgreSQL in the block."""
    try:
        yield
    except NoConnectionFree as error:
        raise Unavailable(ALL_IN_USE) from error
    except psycopg.Error as error:
        raise translate(error) from error
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate(error.orig) from error
        raise
