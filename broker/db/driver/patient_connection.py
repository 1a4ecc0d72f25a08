"""A psycopg connection that a silent server cannot block.

A server that is stopped, or has vanished, sends nothing, and TCP takes long to notice either.  psycopg by itself
waits for ever; when the waiting task is cancelled, it asks the same server to cancel the statement and waits for
that (with a libpq before 17 in a call that blocks).  Here a wait that ends before its answer closes the
connection.  This takes no time, and PostgreSQL rolls back what was not committed (client_connection_check_interval
lets it notice soon).
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql, waiting
from psycopg.abc import Params, PQGen, Query
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import AsyncRowFactory, TupleRow, tuple_row

from broker.db.citus.two_phases import Written, parts_written
from broker.db.driver.replication import is_unreplicated, unreplicated

_INTERVAL_SECONDS = 0.1  # between two checks, as psycopg's own
_ROLLBACK_SECONDS = _CHECK_SECONDS = 2.0

# After statement_timeout (db/driver/database.py) no answer will arrive.
PATIENCE_SECONDS = 35.0

RV = TypeVar("RV")


class PatientConnection(psycopg.AsyncConnection[TupleRow]):
    """Waits `patience` seconds for an answer, then closes and raises OperationalError: the outcome is unknown.

    A cancelled wait closes it at once.  What waits for something other than an answer, as `notifies` does, needs a
    timeout of its own.
    """

    patience = PATIENCE_SECONDS

    def __init__(self, pgconn: PGconn, row_factory: AsyncRowFactory[TupleRow] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self._unreplicated = False
        self._written = Written()  # by the open transaction; used only with `say_two_phases`
        self._say_two_phases = b""
        self.add_notice_handler(self._noticed)

    def say_two_phases(self, statement: str) -> None:
        """Sets the statement to send before transactions that write to both parts.

        Without it the parts would be committed one after the other.
        """
        self._say_two_phases = statement.encode()
        self.cursor_factory = _SayingCursor

    def to_be_said(self, query: Query) -> bytes:
        """Returns the text to send before a statement (b"": nothing)."""
        if self.autocommit and self.info.transaction_status == TransactionStatus.IDLE:
            return b""  # it is a transaction of its own
        is_to_be = self._written.is_to_be_said(parts_written(_text(query)))
        return self._say_two_phases if is_to_be else b""

    def _noticed(self, notice: Diagnostic) -> None:
        self._unreplicated = self._unreplicated or is_unreplicated(notice)

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = _INTERVAL_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> RV:
        try:
            async with asyncio.timeout(self.patience if timeout is None else None):
                answer = await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)
        except TimeoutError:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not answer for {self.patience:g} s") from None
        except Exception:
            raise
        except BaseException:
            self.pgconn.finish()
            raise
        finally:
            if self._say_two_phases and self.info.transaction_status == TransactionStatus.IDLE:
                self._written.forget()
        if self._unreplicated:
            self.pgconn.finish()
            raise unreplicated()
        return answer

    async def rollback(self) -> None:
        """Rolls back as psycopg does.

        If the server does not answer soon, the connection is closed, which rolls back too.
        """
        try:
            with self._less_patient(_ROLLBACK_SECONDS):
                await super().rollback()
        except psycopg.OperationalError:
            if not self.closed:
                raise

    async def check(self) -> None:
        """Raises OperationalError unless the server answers soon: the connection may have been idle for long.

        Ends autocommit mode, whatever the connection was used for before.
        """
        with self._less_patient(_CHECK_SECONDS):
            await self.set_autocommit(True)  # otherwise this would begin a transaction
            await self.execute(b"SELECT 1")
            await self.set_autocommit(False)

    @contextmanager
    def _less_patient(self, seconds: float) -> Iterator[None]:
        patience, self.patience = self.patience, min(self.patience, seconds)
        try:
            yield
        finally:
            self.patience = patience


class _SayingCursor(psycopg.AsyncCursor[TupleRow]):
    """Says what its connection has to say first."""

    async def execute(self, query: Query, params: Params | None = None, **options: Any) -> Self:
        if said := _of(self).to_be_said(query):
            await super().execute(said)
        return await super().execute(query, params, **options)  # type: ignore[arg-type]  # no template

    async def executemany(self, query: Query, params_seq: Iterable[Params], **options: Any) -> None:
        if said := _of(self).to_be_said(query):
            await super().execute(said)
        await super().executemany(query, params_seq, **options)


def _of(cursor: _SayingCursor) -> PatientConnection:
    connection = cursor.connection
    assert isinstance(connection, PatientConnection)
    return connection


def _text(query: Query) -> str:
    if isinstance(query, str):
        return query
    return query.decode() if isinstance(query, bytes) else sql.as_string(query)
