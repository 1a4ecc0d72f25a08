"""A connection for the hot statements: libpq's pipeline mode, driven by the event loop.

psycopg's own async cursors cost 50 to 100 µs of Python a statement (cursor, adaptation, registering with the event
loop for every wait); here a statement is a prepared name and ready-made binary parameters, the socket stays
registered, and a round trip of two statements costs 30 µs (docs/decisions/0006).

A HotConnection belongs to one task at a time.  Whatever goes wrong on the way closes it: that alone is certain to
commit nothing of what was queued.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer

from broker.store.binary import ENCODERS
from broker.store.statements import Statement

_BINARY = 1
_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

Bound = tuple[Statement, dict[str, Any]]


class HotConnection:
    """Runs batches of statements, each batch in one round trip."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._owner = connection  # closes the socket when it goes
        self._pgconn = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._prepared: set[Statement] = set()
        self._results: list[pq.abc.PGresult] = []
        self._answered: asyncio.Future[None] | None = None
        self._writable: asyncio.Event | None = None
        self._transformer = Transformer()
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._socket = self._pgconn.socket
        self._loop.add_reader(self._socket, self._read)

    @property
    def closed(self) -> bool:
        return self._owner.closed

    async def close(self) -> None:
        """Close; a transaction that is open is rolled back."""
        if not self.closed:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            await self._owner.close()

    async def run(self, *bound: Bound) -> list[list[tuple[Any, ...]]]:
        """Send statements in one round trip; the rows of each.

        Outside BEGIN … COMMIT the batch is one transaction that has committed when this returns.
        Raises psycopg.Error; the connection is closed then.
        """
        try:
            return [self._rows(result) for result in await self._round_trip(bound)]
        except BaseException:
            await self.close()
            raise

    async def _round_trip(self, bound: Sequence[Bound]) -> Sequence[pq.abc.PGresult]:
        self._results = []
        self._answered = self._loop.create_future()
        skipped = []  # results of PREPARE, which come before that of their statement
        for statement, parameters in bound:
            if statement not in self._prepared:
                self._pgconn.send_prepare(statement.name, statement.text, statement.type_oids)
                self._prepared.add(statement)
                skipped.append(True)
            values = [ENCODERS[type_name](parameters[name]) for name, type_name in statement.parameters]
            self._pgconn.send_query_prepared(statement.name, values, [_BINARY] * len(values), _BINARY)
            skipped.append(False)
        self._pgconn.pipeline_sync()
        await self._flush()
        await self._answered
        for result in self._results:
            if result.status not in _OK:
                raise errors.error_from_result(result)
        return [result for result, skip in zip(self._results, skipped, strict=True) if not skip]

    async def _flush(self) -> None:
        """Hand everything to the socket; answers are read meanwhile, or both sides could wait for each other."""
        if not self._pgconn.flush():
            return
        self._writable = asyncio.Event()
        self._loop.add_writer(self._socket, self._writable.set)
        try:
            while self._pgconn.flush():
                self._writable.clear()
                await self._writable.wait()
        finally:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        """The socket is readable: take the results that are complete, up to the batch's sync."""
        answered = self._answered
        try:
            self._pgconn.consume_input()
            while answered is not None and not answered.done() and not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    continue  # the end of one statement's results
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    answered.set_result(None)
                else:
                    self._results.append(result)
        except psycopg.Error as error:
            self._loop.remove_reader(self._socket)
            if answered is not None and not answered.done():
                answered.set_exception(error)

    def _rows(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        if not result.ntuples:
            return []
        self._transformer.set_pgresult(result, set_loaders=True, format=pq.Format.BINARY)
        return self._transformer.load_rows(0, result.ntuples, tuple)
