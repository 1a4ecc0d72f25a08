"""Previews a seek: compares the backlog of a subscription in a shard before and after it, message by message (G2).

Both are read in a transaction that seeks and is then rolled back, so that the preview shows exactly the seek that
would be made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from broker.core.backlog.delivery_state import unsettled
from broker.core.backlog.seeking.cursors import ShardSeek, lock, position_at
from broker.core.backlog.seeking.preview import MAX_PREVIEWED, Amount, Preview
from broker.core.filtering.comparing import most_compared
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection, driver_of
from broker.model.preview import MAX_COMPARED, MAX_EXACT
from broker.model.sequences import bounds_of, from_multirange, to_multirange

_READ_HELD = statements.load("read_held")
_MEASURE_BATCHES = statements.load("measure_batches")
_MEASURE_MESSAGES = statements.load("measure_messages")
_FIRST_SEQUENCE = statements.load("read_first_sequence")

_PIECE = 1_000  # messages that are read and compared at a time: a few milliseconds
_EVER = datetime.min.replace(tzinfo=UTC)
_Position = tuple[datetime, int]
_Run = tuple[datetime, datetime, str, str | None]  # publish times, sequences, and their key if that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits on what a preview reads of a shard.  If there is more, its result is an estimate.

    `messages`: how many messages are compared one by one; fewer if a filter reads bodies, unless `is_exact`.
    `batches`: how many batches are counted without reading their messages, where it is clear that all of these are
    skipped.
    """

    messages: int = MAX_PREVIEWED
    batches: int = 0
    is_exact: bool = False


FOR_PREVIEWS = Effort()
FOR_COUNTS = Effort(batches=MAX_EXACT // 10)
FOR_LIMITS = Effort(messages=MAX_COMPARED, batches=MAX_EXACT, is_exact=True)


@dataclass(slots=True)
class Holding:
    """The messages that a subscription has in a shard, as they were read; later changes do not show."""

    next_publish_time: datetime
    next_seq: int
    out: set[int] = field(default_factory=set)
    waiting: dict[str, Sequence[tuple[int, int]]] = field(default_factory=dict)  # by key
    redriven: set[int] = field(default_factory=set)
    redriven_keys: set[str] = field(default_factory=set)
    runs: list[_Run] = field(default_factory=list)

    def has(self, seq: int, key: str | None) -> bool:
        return seq >= self.next_seq or seq in self.out or self._waits(seq, key)

    def is_redriven(self, seq: int, key: str | None) -> bool:
        """Returns whether a message is delivered however old it is."""
        return seq in self.redriven or (key in self.redriven_keys and self._waits(seq, key))

    def _waits(self, seq: int, key: str | None) -> bool:
        return any(first <= seq < end for first, end in self.waiting.get(key or "", ()))


async def read_holding(connection: ResourceConnection, seek: ShardSeek) -> Holding | None:
    """Reads what a subscription has of a shard, and locks it until the transaction ends.

    None: it has no cursor.
    """
    cursor = await lock(connection, seek)
    if cursor is None:
        return None
    holding = Holding(*cursor)
    for row in (await connection.exec_driver_sql(_READ_HELD, seek.where)).all():
        _add(holding, row)
    return holding


def _add(holding: Holding, row: Any) -> None:
    seqs, bits, key, waiting, first, last, redriven = row
    all_seqs = from_multirange(seqs)
    still_open = [all_seqs[ordinal] for ordinal in unsettled(bits, ordered=key is not None)]
    if still_open:
        holding.out.update(still_open)
        holding.runs.append((first, last, to_multirange(still_open), None))
    if redriven:
        holding.redriven.update(still_open)
    if key is not None and (ranges := [(low, min(high, holding.next_seq)) for low, high in bounds_of(waiting)]):
        holding.waiting[key] = ranges
        if redriven:
            holding.redriven_keys.add(key)
        text = "{" + ",".join(f"[{low},{high})" for low, high in ranges if low < high) + "}"
        holding.runs.append((first, max(last, holding.next_publish_time), text, key))


async def compare(
    connection: ResourceConnection,
    seek: ShardSeek,
    before: Holding,
    after: Holding,
    *,
    time: datetime | None,
    effort: Effort = FOR_PREVIEWS,
) -> Preview:
    """Compares `before` with `after`, the present state of the shard.

    `time`: the time that was sought; None: a snapshot was.
    """
    most = effort.messages if effort.is_exact else most_compared(effort.messages, seek.body_path)
    positions = [(before.next_publish_time, before.next_seq), (after.next_publish_time, after.next_seq)]
    if time is not None:
        positions.append(await position_at(connection, seek, time))
    first, last = min(positions, key=lambda at: at[1]), max(positions[:2], key=lambda at: at[1])
    runs = [run for run in (*before.runs, *after.runs) if run[2] != "{}"]
    region = (first[1], last[1])
    batches = None
    if effort.batches and first[1] == before.next_seq and _skips_all(seek, before, after):
        region = (last[1], last[1])
        batches = await _measure_batches(connection, seek, first, last, effort.batches)
    if region[0] < region[1]:
        runs.append((first[0], last[0], f"{{[{first[1]},{last[1]})}}", None))
    counting = _Counting(seek, before, after, time, region)
    count = await _measure(connection, seek, runs, most, counting)
    gone = await _gone(connection, seek, before, after, time)
    is_estimated = count >= most
    if is_estimated:
        counting.estimate()
    if batches is not None:
        messages, size, newest, looked_at = batches
        is_estimated |= looked_at >= effort.batches
        messages, size = (last[1] - first[1], size) if looked_at >= effort.batches else (messages, size)
        counting.skipped.add(messages, size)
        if newest is not None:
            counting.note(newest)
    return Preview(
        counting.again,
        counting.skipped,
        not_retained=counting.not_retained + gone,
        maybe_gone=gone,
        is_estimated=is_estimated,
        newest=last[0] if is_estimated else counting.newest,
    )


def _skips_all(seek: ShardSeek, before: Holding, after: Holding) -> bool:
    """Returns whether the seek skips all retained messages between the two positions, which had not been claimed
    before.
    """
    if seek.filter_path is not None or after.next_seq <= before.next_seq:
        return False
    ends = (end for ranges in after.waiting.values() for _, end in ranges)
    return max((*ends, *(seq + 1 for seq in after.out)), default=0) <= before.next_seq


async def _measure_batches(
    connection: ResourceConnection, seek: ShardSeek, first: _Position, last: _Position, most: int
) -> tuple[int, int, datetime | None, int]:
    """Returns the number and bytes of the messages between two positions, the newest publish time, and the number
    of batches read.
    """
    asked = {
        "shard_id": seek.shard_id,
        "from_publish_time": first[0],
        "from_seq": first[1],
        "until_publish_time": last[0],
        "until_seq": last[1],
        "retained_since": seek.retained_since,
        "now": seek.now,
        "most": most,
    }
    measured: Any = (await connection.exec_driver_sql(_MEASURE_BATCHES, asked)).one()
    return tuple(measured)


async def _measure(
    connection: ResourceConnection, seek: ShardSeek, runs: Sequence[_Run], most: int, counting: "_Counting"
) -> int:
    """Reads at most `most` messages of some runs, and adds them to the counts.  Returns how many it has read.

    Reads them piece by piece, so that the event loop serves other calls in between.
    """
    if not runs:
        return 0
    asked = {
        "shard_id": seek.shard_id,
        "first_publish_times": [run[0] for run in runs],
        "last_publish_times": [run[1] for run in runs],
        "seqs": [run[2] for run in runs],
        "ordering_keys": [run[3] for run in runs],
        "filter_path": seek.filter_path,
        "body_path": seek.body_path,
        "max_scanned": most,
    }
    count, is_all = 0, False
    async with (await driver_of(connection)).cursor("measured_messages") as cursor:
        await cursor.execute(_MEASURE_MESSAGES, asked)
        while not is_all:
            rows = await cursor.fetchmany(_PIECE)
            for row in rows:
                counting.add(*row)
            count, is_all = count + len(rows), len(rows) < _PIECE
    return count


async def _gone(
    connection: ResourceConnection, seek: ShardSeek, before: Holding, after: Holding, time: datetime | None
) -> int:
    """Returns an upper bound for the requested messages that the log no longer holds."""
    oldest_time, oldest = await position_at(connection, seek, _EVER)
    if time is None:
        return max(min(oldest, before.next_seq) - after.next_seq, 0)
    if time >= oldest_time:
        return 0
    [(first,)] = (await connection.exec_driver_sql(_FIRST_SEQUENCE, seek.where)).all()
    return max(min(oldest, before.next_seq) - (first or 1), 0)


@dataclass(slots=True)
class _Counting:
    """The counts of a preview, with each message once.

    `region`: the sequences between the positions of the cursor before and after the seek and the position of the
    time that was sought.
    """

    seek: ShardSeek
    before: Holding
    after: Holding
    time: datetime | None
    region: tuple[int, int]
    again: Amount = field(default_factory=Amount)
    skipped: Amount = field(default_factory=Amount)
    not_retained: int = 0
    seen: set[int] = field(default_factory=set)
    seen_between: int = 0
    matching: Amount = field(default_factory=Amount)
    newest: datetime | None = None

    def note(self, publish_time: datetime) -> None:
        self.newest = publish_time if self.newest is None else max(self.newest, publish_time)

    def add(
        self,
        seq: int,
        publish_time: datetime,
        key: str | None,
        expires_at: datetime | None,
        size: int,
        matches: bool,
    ) -> None:
        if seq in self.seen:
            return
        self.seen.add(seq)
        self.seen_between += self.region[0] <= seq < self.region[1]
        if not matches:
            return
        self.matching.add(1, size)
        had, has = self.before.has(seq, key), self.after.has(seq, key)
        is_past = publish_time < self.seek.retained_since or (
            expires_at is not None and expires_at <= self.seek.now
        )
        retained = not is_past or self.before.is_redriven(seq, key)
        passed = seq < self.before.next_seq
        asked = passed and (has if self.time is None else publish_time >= self.time)
        if has and retained and passed:
            self.again.add(1, size)
            self.note(publish_time)
        elif had and retained and not has:
            self.skipped.add(1, size)
            self.note(publish_time)
        if asked and not (has and retained):
            self.not_retained += 1

    def estimate(self) -> None:
        """Estimates the messages that were not read from those that were."""
        low, high = self.region
        left = max(high - low - self.seen_between, 0)
        share = self.matching.messages / len(self.seen)
        size = self.matching.size / max(self.matching.messages, 1)
        if self.after.next_seq < self.before.next_seq:
            left = min(left, self.before.next_seq - self.after.next_seq)
            self.again.add(round(left * share), round(left * share * size))
        elif self.after.next_seq > self.before.next_seq:
            self.skipped.add(round(left * share), round(left * share * size))
        out = self.before.out | self.after.out
        for seq in out - self.seen:
            if seq in self.after.out:
                self.again.add(1, round(size))
            else:
                self.skipped.add(1, round(size))
