"""Connections, transactions, and what a failed statement means.

Two ways in: `connection()` for the hot statements (psycopg, autocommit, prepared), `transaction()` for the
resources (SQLAlchemy Core).  Both translate errors of PostgreSQL by one table.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from broker.domain.errors import Aborted, BrokerError, Internal, InvalidArgument, Unavailable

Connection = psycopg.AsyncConnection[Any]  # for hot statements
ResourceConnection = AsyncConnection  # for resources

# The pool waits twice as long after each failed attempt to connect; after so long it gives up, and the next call
# that needs a connection tries at once.  Else the broker would stay away for as long again as the database was.
_RECONNECT_SECONDS = 5.0

# What every session is told, whatever the server's configuration says.
_SESSION_SETTINGS = {
    "synchronous_commit": "on",  # an answer means "on disk" (A1)
    "jit": "off",  # compiling costs more than any hot statement runs
    "timezone": "UTC",
    "statement_timeout": "30s",  # a stuck statement must not hold a cursor for ever
    "idle_in_transaction_session_timeout": "30s",  # nor a broker process that stopped within a claim
    "application_name": "broker",
}

# SQLSTATE (or its class) -> what the caller is told.  Unavailable: the same call may work when sent again.
_ERRORS: tuple[tuple[type[psycopg.Error], type[BrokerError], str], ...] = (
    (pg.DeadlockDetected, Aborted, "The call met a concurrent change; try it again."),
    (pg.UniqueViolation, Aborted, "The call met a concurrent change; try it again."),
    (pg.SerializationFailure, Aborted, "The call met a concurrent change; try it again."),
    (pg.LockNotAvailable, Unavailable, "The resource is busy; try again."),
    (pg.QueryCanceled, Unavailable, "The database took too long; try again."),
    (pg.UntranslatableCharacter, InvalidArgument, "A text has a character that cannot be stored."),
    (pg.CharacterNotInRepertoire, InvalidArgument, "A text has a character that cannot be stored."),
    (psycopg.OperationalError, Unavailable, "The database cannot be reached or went away; try again."),
    (psycopg.InterfaceError, Unavailable, "The database cannot be reached or went away; try again."),
)


def translate(error: psycopg.Error) -> BrokerError:
    """The BrokerError that stands for an error of PostgreSQL; Internal for one that nobody foresaw."""
    for cause, meaning, message in _ERRORS:
        if isinstance(error, cause):
            return meaning(message)
    return Internal(f"The database refused a statement ({error.sqlstate or type(error).__name__}).")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the BrokerError that stands for an error of PostgreSQL in the block."""
    try:
        yield
    except (PoolTimeout, PoolClosed) as error:
        raise Unavailable("The database cannot be reached; try again.") from error
    except psycopg.Error as error:
        raise translate(error) from error
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate(error.orig) from error
        raise


class PgBinary:
    """A parameter that is already in PostgreSQL's binary form; subclasses name its type."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer


class TextArray(PgBinary):
    """text[] in binary."""


class JsonbArray(PgBinary):
    """jsonb[] in binary."""


class ByteaArray(PgBinary):
    """bytea[] in binary."""


def _binary_dumper(type_oid: int) -> type[Dumper]:
    class BinaryDumper(Dumper):
        format = Format.BINARY
        oid = type_oid

        def dump(self, obj: PgBinary) -> bytes:
            return obj.buffer

    return BinaryDumper


async def _configure(connection: Connection) -> None:
    # Every int as int8: psycopg otherwise picks the smallest type that holds the value, and each combination
    # of types is a prepared statement of its own.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(TextArray, _binary_dumper(1009))
    connection.adapters.register_dumper(JsonbArray, _binary_dumper(3807))
    connection.adapters.register_dumper(ByteaArray, _binary_dumper(1001))


class Database:
    """One PostgreSQL database.  Open it before use, close it after."""

    def __init__(self, url: str, *, pool_size: int = 8, connect_timeout_seconds: float = 10.0) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in _SESSION_SETTINGS.items())
        self.url = url
        self.session_options = options
        self._pool = AsyncConnectionPool[Connection](
            url,
            min_size=min(2, pool_size),
            max_size=pool_size,
            open=False,
            timeout=connect_timeout_seconds,
            reconnect_timeout=_RECONNECT_SECONDS,
            configure=_configure,
            check=None,
            kwargs={"autocommit": True, "prepare_threshold": 0, "options": options},
        )
        self._engine = create_async_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            pool_size=min(4, pool_size),
            max_overflow=4,
            pool_pre_ping=True,
            connect_args={"options": options, "connect_timeout": 10},
        )

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()
        await self._engine.dispose()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode for hot statements.

        Raises a BrokerError for whatever goes wrong in the block on PostgreSQL's side.
        """
        with translate_errors():
            async with self._pool.connection() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """An SQLAlchemy transaction for resources; commits at the end of the block."""
        with translate_errors():
            async with self._engine.begin() as connection:
                yield connection

    async def dedicated_connection(self) -> Connection:
        """A connection outside the pool, in autocommit mode: the caller owns and closes it."""
        with translate_errors():
            connection: Connection = await psycopg.AsyncConnection.connect(
                self.url, autocommit=True, options=self.session_options, connect_timeout=10
            )
        return connection

    async def now(self) -> datetime:
        """The database's time, as of some moment while this call runs."""
        async with self.connection() as connection:
            cursor = await connection.execute(b"SELECT clock_timestamp()")
            row = await cursor.fetchone()
            assert row is not None
            now: datetime = row[0]
            return now


async def driver_connection(connection: ResourceConnection) -> Connection:
    """The psycopg connection below a resource transaction, for hot statements within that transaction."""
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, psycopg.AsyncConnection)
    return driver


@asynccontextmanager
async def pipelined(connection: Connection) -> AsyncIterator[None]:
    """A transaction whose statements are pipelined; the block ends it itself with COMMIT or `end_unchanged`.

    An exception in the block closes the connection: that alone is certain to commit nothing of what was queued.
    """
    try:
        async with connection.pipeline():
            await connection.execute(b"BEGIN")
            yield
    except BaseException:
        await connection.close()
        raise


async def end_unchanged(connection: Connection) -> None:
    """End a pipelined transaction that has taken locks and changed nothing.

    Not by ROLLBACK: psycopg answers that by deallocating every prepared statement, also those that the same
    pipeline has just made and goes on to use.  A row lock alone makes a commit wait for the disk: this need not.
    """
    await connection.execute(b"SET LOCAL synchronous_commit = off")
    await connection.execute(b"COMMIT")
