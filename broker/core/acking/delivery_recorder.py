"""The record of deliveries, written in the background after the acks (docs/decisions/0064).

    an ack is committed ──► acknowledged() ──► pending ──every second, or at FLUSH_BYTES──► a few rows of many acks

On the path of a message this costs one append to a list for each row of an attempt.  Grouping, packing and writing
are done in the background, a few rows at a time.  Pending acks are lost when the process is killed.  If the
database does not accept them and they exceed MAX_PENDING_BYTES, the excess is dropped, which the log and a metric
report.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

from broker.core.acking.ack_batch import AckAttributions
from broker.core.acking.delivery_attempts import AckedRow
from broker.core.context.core import Core
from broker.core.log.partitions import with_partitions
from broker.core.process.attempt_ids import handed_out_microseconds, microseconds
from broker.core.records.delivery_record import AckedMessages, By, RecordRow, RecordRows
from broker.core.records.delivery_record_rows import insert_records
from broker.model.due_attempt import attempt_numbers
from broker.model.journal import Attribution, ranges_of
from broker.model.sequences import bounds_in, from_bits, from_multirange
from broker.observability.metrics.families import RECORDS_DROPPED

FLUSH_SECONDS = 1.0
FLUSH_BYTES = 500_000  # of pending acks, from which on they are written at once
MAX_PENDING_BYTES = 32_000_000
_ROW_BYTES = 400  # of a pending row, besides its texts
_ROWS_PER_STEP = 200  # packed at a time: about a millisecond of the event loop
_ROWS_PER_WRITE = 5_000
_DROPPED = "records of deliveries are dropped"

Claim = tuple[int, int]  # a subscription and an attempt


class _Pending:
    """The acknowledgement of one row of an attempt.

    `attribution`: who acknowledged it; with several callers, each of them with its ordinals.
    """

    __slots__ = ("acked_at", "attribution", "row", "shard_id")

    def __init__(
        self,
        shard_id: int,
        row: AckedRow,
        attribution: Attribution | Sequence[tuple[set[int], Attribution]],
        acked_at: int,
    ) -> None:
        self.shard_id = shard_id
        self.row = row
        self.attribution = attribution
        self.acked_at = acked_at

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return _ROW_BYTES + len(self.row[2]) + len(self.row[3])

    def acked(self) -> Iterable[AckedMessages]:
        """Yields the acknowledged messages, by author and attempt."""
        subscription_id, attempt_id, bits, seqs, number, *more = self.row
        numbers = attempt_numbers(more[0]) if more and more[0] is not None else None
        handed_out_at = handed_out_microseconds(attempt_id)
        if isinstance(self.attribution, Attribution) and numbers is None and "0" not in bits:
            by = By(self.attribution.author, self.attribution.answer)
            yield AckedMessages(subscription_id, by, bounds_in(seqs), number, self.acked_at, handed_out_at)
            return
        every, left = from_multirange(seqs), [*from_bits(bits)]
        for some, attribution in (
            [(None, self.attribution)] if isinstance(self.attribution, Attribution) else self.attribution
        ):
            mine = left if some is None else [ordinal for ordinal in left if ordinal in some]
            left = [] if some is None else [ordinal for ordinal in left if ordinal not in some]
            by = By(attribution.author, attribution.answer)
            for attempt, bounds in _by_attempt(mine, every, number, numbers):
                yield AckedMessages(subscription_id, by, bounds, attempt, self.acked_at, handed_out_at)


def _by_attempt(
    ordinals: Iterable[int], seqs: Sequence[int], number: int, numbers: Sequence[int] | None
) -> Iterable[tuple[int, Sequence[int]]]:
    by_number: dict[int, list[int]] = {}
    for ordinal in ordinals:
        by_number.setdefault(number if numbers is None else numbers[ordinal], []).append(seqs[ordinal])
    for attempt, of_it in by_number.items():
        yield attempt, [*chain.from_iterable(ranges_of(of_it))]


class DeliveryRecords:
    """The record of deliveries, as one process writes it."""

    def __init__(self, core: Core, *, on: bool = True) -> None:
        """Creates the record.  Unless it is `on`, nothing is recorded."""
        self.on = on
        self._database = core.database
        self._clock = core.clock
        self._states = core.states
        self._counts = core.counters.process
        self._pending: deque[_Pending] = deque()
        self._size = 0
        self._full = asyncio.Event()
        self._writing = asyncio.Lock()

    def acknowledged(
        self, shard_id: int, rows: Sequence[AckedRow], attribution: AckAttributions, now: datetime
    ) -> None:
        """Adds rows whose acknowledgement is committed to what is recorded."""
        if not self.on or not rows:
            return
        acked_at = microseconds(now)
        by: Mapping[Claim, Attribution | Sequence[tuple[set[int], Attribution]]] = {
            (name.subscription_id, name.attempt_id): each[0][1] if len(each) == 1 else each
            for name, each in attribution.items()
        }
        for row in rows:
            attributed = by.get((row[0], row[1]))
            if attributed is not None:
                pending = _Pending(shard_id, row, attributed, acked_at)
                self._pending.append(pending)
                self._size += pending.size
        if self._size >= FLUSH_BYTES:
            self._full.set()
            if self._size > MAX_PENDING_BYTES:
                self._drop()

    async def run(self) -> None:
        """Write what is pending, every second or as soon as it is much."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what was pending when this was called.  Raises a BrokerError; it is pending still then."""
        async with self._writing:
            left = len(self._pending)
            while left > 0 and self._pending:
                some = [self._pending.popleft() for _ in range(min(left, _ROWS_PER_WRITE, len(self._pending)))]
                left -= len(some)
                try:
                    await self._write(some)
                except BaseException:
                    self._pending.extendleft(reversed(some))
                    raise
                self._size -= sum(pending.size for pending in some)

    async def _write(self, some: Sequence[_Pending]) -> None:
        now = self._clock.now()
        by_shard: dict[int, RecordRows] = {}
        for first in range(0, len(some), _ROWS_PER_STEP):
            for pending in some[first : first + _ROWS_PER_STEP]:
                rows = by_shard.setdefault(pending.shard_id, RecordRows(microseconds(now)))
                for acked in pending.acked():
                    rows.add(acked)
            await asyncio.sleep(0)  # lets other tasks run
        written: dict[int, Sequence[RecordRow]] = {shard_id: rows.rows() for shard_id, rows in by_shard.items()}

        async def insert() -> None:
            async with self._database.hot() as connection:
                await insert_records(connection, written, now=now)

        await with_partitions(self._database, self._clock.now, insert)

    def _drop(self) -> None:
        """Drops the oldest of the records that the database has not taken."""
        dropped = 0
        while self._size > MAX_PENDING_BYTES and self._pending:
            pending = self._pending.popleft()
            self._size -= pending.size
            dropped += pending.row[2].count("1")
        self._counts[RECORDS_DROPPED] += dropped
        why = f"the database does not take them, and {MAX_PENDING_BYTES // 1_000_000} MB wait"
        self._states.happens("records", "", _DROPPED, why)
