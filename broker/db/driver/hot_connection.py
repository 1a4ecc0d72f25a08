"""A connection for hot statements: libpq's pipeline mode, driven by the event loop.

psycopg's own async cursors need 50 to 100 µs of Python for a statement (cursor, adaptation, and registration with
the event loop for every wait).  Here a statement is a prepared name with parameters in binary, the socket stays
registered, and a round trip of two statements costs 30 µs (docs/decisions/0006).

A HotConnection belongs to one task at a time, or to several that each send batches which are complete
transactions.  PostgreSQL runs batches in the order in which they were sent, each up to its own Sync, so an error
ends its batch and the next one runs.  Any other failure closes the connection, because only that guarantees that
nothing of the queue is committed.  After an error of PostgreSQL itself the batches behind it are still answered.

In PostgreSQL several statements up to a Sync are one transaction.  Other servers with its protocol commit the first
statement separately, so BEGIN and COMMIT are sent to them (docs/decisions/0040).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer

from broker.db.citus.two_phases import Written
from broker.db.driver.binary import OIDS, encode_int8s
from broker.db.driver.forms import run_in_forms
from broker.db.driver.held_shards import HOLD_SHARDS, shards_locked_by
from broker.db.driver.replication import is_unreplicated, unreplicated
from broker.db.driver.statements import BEGIN, COMMIT, NO_WAIT, ROLLBACK, Statement

_BINARY = 1
# When the server dies with unread data of ours, the socket has an error.  uvloop then calls the reader once more
# and never again, whatever is left to read (libuv ends a poll at POLLERR), so the socket is polled here, too.
_WATCH_SECONDS = 0.5
# A server that is stopped or unreachable sends nothing.  After statement_timeout (db/driver/database.py) no answer
# will arrive, and the outcome of what was sent is unknown.
UNANSWERED_SECONDS = 12.0
# libpq's buffers grow with the data, up to twice its size, and never shrink.  A row is read as a whole.
BULKY_BYTES = 4_000_000
_BODY_OIDS = (OIDS["bytea"], OIDS["bytea[]"])
_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

Bound = tuple[Statement, dict[str, Any]]

# Ends a transaction that has taken locks but changed nothing.
NOTHING_CHANGED: tuple[Bound, ...] = ((NO_WAIT, {}), (COMMIT, {}))


class NeedsCoordinator(Exception):
    """A transaction writes numbers that only the coordinator of a cluster gives out; nothing has changed."""


@dataclass(slots=True, eq=False)
class _Batch:
    """The statements that were sent up to a Sync, or two: the COMMIT that was added comes after the first.

    `answered` is set when its last Sync is answered, to PostgreSQL's error if there was one; it fails if the
    connection is lost before.
    """

    answered: asyncio.Future[psycopg.Error | None]
    syncs: int = 1
    unreplicated: bool = False  # a standby has not confirmed its commit
    asked: list[Statement | None] = field(default_factory=list)  # by result; None: not requested
    prepares: list[Statement] = field(default_factory=list)
    results: list[pq.abc.PGresult] = field(default_factory=list)


class HotConnection:
    """Runs batches of statements, each batch in one round trip.

    open ──PostgreSQL answers an error──► failed ──what is in flight is answered──► closed
      └──the connection is lost, no answer comes, or a task that waits for one is cancelled──▲
    """

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        *,
        took: Callable[[float], None] = lambda _: None,
        whole_pipelines: bool = True,
        is_distributed: bool = False,
        say_two_phases: str = "",
        gives_numbers: bool = True,
    ) -> None:
        """`took(seconds)`: a round trip has ended; `whole_pipelines`: each is a transaction, up to its Sync;
        `is_distributed`, `say_two_phases`: as Engine has them; `gives_numbers`: what identity columns get is in the
        order of all nodes, as the coordinator's.
        """
        self.whole_pipelines, self.is_distributed = whole_pipelines, is_distributed
        self.gives_numbers = gives_numbers
        self._shards_move = is_distributed
        self._say_two_phases = Statement(b"say_two_phases", say_two_phases.encode()) if say_two_phases else None
        self._written = Written()  # by the transaction that is open
        self._took = took
        self._owner = connection  # closes the socket when it is deleted
        connection.add_notice_handler(self._noticed)
        self._pgconn = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._prepared: set[Statement] = set()
        self._bodies: dict[Statement, list[int]] = {}  # of statements whose rows were seen: the columns with bodies
        self._in_flight: deque[_Batch] = deque()  # in the order of their answers
        self._begun = False  # a transaction, by the last batch that was sent
        self.failed = False  # no more batches may be sent
        self.gave_up = False  # the server did not answer
        self.bulky = False  # it holds a lot of memory: not worth keeping
        self._answered_at = self._checked_at = 0.0  # when an answer came last, or was first waited for
        self.users = 0  # tasks that hold it; owned by HotPool
        self._transformer = Transformer()
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._socket = self._pgconn.socket
        self._loop.add_reader(self._socket, self._read)
        self._registered = True
        self._watch = self._loop.call_later(_WATCH_SECONDS, self._check)

    @property
    def closed(self) -> bool:
        return self._owner.closed

    @property
    def address(self) -> tuple[str, str]:
        """Host and port of the server, of several that might have answered."""
        return self._pgconn.host.decode(), self._pgconn.port.decode()

    @property
    def in_transaction(self) -> bool:
        """Whether what was sent last has left one open."""
        return self._begun

    @property
    def can_be_followed(self) -> bool:
        """Whether a batch that is sent now does not depend on those in flight.

        It would if one of them prepares a statement, since that fails when the batch does; nor may it come into a
        transaction of several batches.
        """
        return not self.failed and not self._begun and not any(batch.prepares for batch in self._in_flight)

    async def close(self) -> None:
        """Close; a transaction that is open is rolled back, the outcome of batches in flight is unknown."""
        self._lose(psycopg.OperationalError("the connection was closed before its answer"))
        if not self.closed:
            await self._owner.close()

    async def undo(self) -> None:
        """Roll back the transaction that is open.  Raises psycopg.Error."""
        await self.run((ROLLBACK, {}))
        self._begun = False

    async def run(self, *bound: Bound, as_written: bool = False) -> list[list[Any]]:
        """Send statements in one round trip; the rows of each, named as the statement declares them.

        On distributed tables a statement is sent in its second form if it has one, which may take several round
        trips (db/driver/forms.py); not if they are to be sent `as_written`.
        Outside BEGIN … COMMIT the batch is one transaction that has committed when this returns, on any database.
        Raises psycopg.Error; the connection is failed then.  An OperationalError means that the outcome is unknown.
        """
        if self.is_distributed and not as_written:
            return await run_in_forms(self, bound)
        batch = _Batch(self._loop.create_future())
        began = perf_counter()
        try:
            self._send(batch, bound)
            error = await batch.answered
            self._took(perf_counter() - began)
        except BaseException:
            batch.answered.cancel()
            await self.close()
            raise
        if self.failed and not self._in_flight:
            await self.close()
        if error is not None:
            raise error
        return [
            self._rows(result, statement) if result.ntuples else []
            for result, statement in zip(batch.results, batch.asked, strict=True)
            if statement is not None
        ]

    def _send(self, batch: _Batch, bound: Sequence[Bound]) -> None:
        values = [
            [encode(parameters[name]) if encode else parameters[name] for name, encode in statement.encoders]
            for statement, parameters in bound
        ]
        if not self._in_flight:
            self._answered_at = self._loop.time()
        self._in_flight.append(batch)
        given = [statement for statement, _ in bound]
        if self._shards_move and not self._begun:
            self._written.forget()
        is_whole = self.whole_pipelines or len(bound) < 2 or self._begun or given[0] is BEGIN
        if COMMIT in given and not self._begun and given[0] is not BEGIN:  # PostgreSQL would only warn
            raise RuntimeError(f"{given[0].name.decode()} is to be committed, and no transaction was begun")
        if not is_whole:
            self._queue(batch, BEGIN)
        for (statement, named), parameters in zip(bound, values, strict=True):
            if self._shards_move:
                self._on_nodes(batch, statement, named)
            self._queue(batch, statement, parameters, asked=statement)
        self._pgconn.pipeline_sync()
        if not is_whole:  # after a Sync, so that it always runs, and also ends a failed transaction
            self._queue(batch, COMMIT)
            self._pgconn.pipeline_sync()
            batch.syncs = 2
        self._begun = COMMIT not in given and (self._begun or given[0] is BEGIN)
        if self._pgconn.flush():  # the rest is sent when the socket accepts it; answers are read meanwhile
            self._loop.add_writer(self._socket, self._write)
            sent = sum(len(value) for each in values for value in each if value is not None)
            self.bulky = self.bulky or sent > BULKY_BYTES

    def _queue(
        self,
        batch: _Batch,
        statement: Statement,
        parameters: Sequence[bytes | None] = (),
        *,
        asked: Statement | None = None,
    ) -> None:
        if statement not in self._prepared and statement not in batch.prepares:
            self._pgconn.send_prepare(statement.name, statement.text, statement.type_oids)
            batch.prepares.append(statement)
            batch.asked.append(None)
        self._pgconn.send_query_prepared(statement.name, parameters, [_BINARY] * len(parameters), _BINARY)
        batch.asked.append(asked)

    def _on_nodes(self, batch: _Batch, statement: Statement, given: dict[str, Any]) -> None:
        """Shards do not move from here to the end of the transaction where rows of them are going to be locked; and
        what is written to the catalog besides is kept with what is written to them, or neither.
        """
        if self._say_two_phases and self._written.is_to_be_said(statement.parts_written):
            self._queue(batch, self._say_two_phases)
        if shard_ids := shards_locked_by(statement, given):
            self._queue(batch, HOLD_SHARDS, [encode_int8s(sorted(shard_ids))])

    def _write(self) -> None:
        """Writes more to the socket, which is writable."""
        try:
            if not self._pgconn.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._lose(error)

    def _read(self) -> None:
        """Reads the results that are complete, each batch's up to its Sync."""
        try:
            self._pgconn.consume_input()
            while self._in_flight and not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    continue  # the end of one statement's results
                batch = self._in_flight[0]
                if result.status != pq.ExecStatus.PIPELINE_SYNC:
                    batch.results.append(result)
                    continue
                batch.syncs -= 1
                if not batch.syncs:
                    self._finish(self._in_flight.popleft())
        except psycopg.Error as error:
            self._lose(error)

    def _check(self) -> None:
        """Whether the connection was lost without a word, or the server does not answer."""
        self._read()
        now, before = self._loop.time(), self._checked_at
        self._checked_at = now
        if now - before > 4 * _WATCH_SECONDS:  # this process was suspended: there may be more to read
            self._answered_at = now
        if self._in_flight and now - self._answered_at > UNANSWERED_SECONDS:
            self.gave_up = True
            self._lose(psycopg.OperationalError("the server did not answer"))
        if self._registered:
            self._watch = self._loop.call_later(_WATCH_SECONDS, self._check)

    def _noticed(self, notice: errors.Diagnostic) -> None:
        if self._in_flight and is_unreplicated(notice):
            self._in_flight[0].unreplicated = True

    def _finish(self, batch: _Batch) -> None:
        self._answered_at = self._loop.time()
        error: psycopg.Error | None = unreplicated() if batch.unreplicated else None
        for result in batch.results:
            if result.status not in _OK:
                error = errors.error_from_result(result)
                break
        if error is None:
            self._prepared.update(batch.prepares)
        else:
            self.failed = True
        if not batch.answered.done():
            batch.answered.set_result(error)

    def _lose(self, error: psycopg.Error) -> None:
        """Fails all statements in flight: their connection is lost."""
        self.failed = True
        if self._registered:
            self._registered = False
            self._watch.cancel()
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        while self._in_flight:
            answered = self._in_flight.popleft().answered
            if not answered.done():
                answered.set_exception(error)

    def _rows(self, result: pq.abc.PGresult, statement: Statement) -> list[Any]:
        """Decodes the rows of a result, which has at least one."""
        bodies = self._bodies.get(statement)
        if bodies is None:
            _check_columns(result, statement)
            bodies = self._bodies[statement] = [n for n in range(result.nfields) if result.ftype(n) in _BODY_OIDS]
        self._transformer.set_pgresult(result, set_loaders=True, format=pq.Format.BINARY)
        rows = self._transformer.load_rows(0, result.ntuples, statement.make_row)
        for number in bodies:
            self.bulky = self.bulky or _largest([row[number] for row in rows]) > BULKY_BYTES
        return rows


def _check_columns(result: pq.abc.PGresult, statement: Statement) -> None:
    names = tuple((result.fname(number) or b"").decode() for number in range(result.nfields))
    if statement.columns and names != statement.columns:
        raise TypeError(f"{statement.name.decode()}.sql declares the columns {statement.columns} and gives {names}")


def _largest(bodies: Iterable[bytes | list[bytes] | None]) -> int:
    """Bytes of the largest of these bodies, or of those of these batches: one of several messages is small."""
    each = chain.from_iterable(body if isinstance(body, list) else (body,) for body in bodies if body)
    return max(map(len, each), default=0)
