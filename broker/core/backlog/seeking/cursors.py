"""Moves the cursors of a subscription by a seek, and reads its position in the log (A9).

Only claims move cursors forward (core/claiming/transaction/).  A seek takes the locks of a claim in the same order:
the cursor first, in a statement of its own, then the attempts in key order.  The statements that follow have later
snapshots than the locks, so they see everything that earlier claims wrote (tests/interleavings/test_seek_rules.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from broker.core.backlog.delivery_state import unsettled
from broker.core.backlog.seeking.position import MAX_SCANNED, Position
from broker.core.backlog.seeking.replay import MAX_COUNTED, ShardReplay
from broker.core.filtering.comparing import most_compared
from broker.core.records.journal import write_journal
from broker.db.driver import statements
from broker.db.driver.database import Connection, ResourceConnection
from broker.model.due_attempt import first_due_floor
from broker.model.journal import NOBODY, PURGED, Author, Event, Range, ranges_of, rows_of, without
from broker.model.sequences import from_bits, from_multirange, to_bits

_LOCK_CURSORS = statements.load("lock_cursors")
_LOCK_ATTEMPTS = statements.load("lock_attempts")
_READ_STRADDLING_ATTEMPTS = statements.load("read_straddling_attempts")
_READ_FIRST_POSITION = statements.load("read_first_position")
_REPLACE_ATTEMPTS = statements.load("replace_attempts")
_DELETE_ATTEMPTS_OUTSIDE = statements.load("delete_attempts_outside")
_DELETE_ALL_ATTEMPTS = statements.load("delete_all_attempts")
_CUT_ORDERED_RUNS = statements.load("cut_ordered_runs")
_RENEW_ATTEMPTS = statements.load("renew_attempts")
_RESTORE_ATTEMPTS = statements.load("restore_attempts")
_RESTORE_ORDERED_ATTEMPTS = statements.load("restore_ordered_attempts")
_MOVE_CURSORS = statements.load("move_cursors")
_LOWER_FIRST_SEQUENCE = statements.load("lower_first_sequence")
_READ_SNAPSHOT_POSITION = statements.load("read_snapshot_position")
_IS_PRIVATE = statements.load("is_private")
_READ_UNSETTLED = statements.load("read_unsettled")
_COUNT_REPLAYED = statements.load("count_replayed")
_READ_POSITIONS = statements.load("read_positions")

_END_OF_LOG = 2**63 - 1  # past any sequence
_EVER, _END_OF_TIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSeek:
    """The parameters of a seek in one shard of a subscription, at `now`.

    The attempts that a seek leaves get ids from `first_attempt_id` on.  Messages that do not match the filter, or
    were published before `retained_since`, are not delivered and so not counted.  `author` and, of a purge,
    `is_purge` are for the journal.
    """

    shard_id: int
    subscription_id: int
    ordered: bool
    now: datetime
    first_attempt_id: int
    retained_since: datetime = _EVER
    filter_path: str | None = None
    body_path: str | None = None
    author: Author = NOBODY
    is_purge: bool = False

    @property
    def where(self) -> dict[str, int]:
        return {"shard_id": self.shard_id, "subscription_id": self.subscription_id}

    def where_many(self, count: int) -> dict[str, int | list[int]]:
        """Returns the parameters of statements that take so many rows, each with its subscription."""
        return {"shard_id": self.shard_id, "subscription_ids": [self.subscription_id] * count}


async def seek_to_time(
    connection: ResourceConnection, seek: ShardSeek, *, time: datetime, replay_since: datetime | None
) -> ShardReplay | None:
    """Ack what was published before `time`, un-ack the rest as far back as acked messages are retained.

    Only messages that exist are acked: what is published after the seek is delivered, though `time` be later still.

    `replay_since` is the oldest publish time whose acked messages come back (None: none do).  Runs within the
    caller's transaction.  None if there is no cursor: the subscription is gone or detached.
    """
    cursor = await lock(connection, seek)
    if cursor is None:
        return None
    before = await _unsettled(connection, seek, cursor[1])
    next_publish_time, next_seq = cursor
    until: datetime | None = None
    until_seq: int | None = None
    await _cut(connection, seek, time, keep_from=True)
    if replay_since is not None and max(time, replay_since) <= next_publish_time:
        until = max(time, replay_since)  # from here on the log itself is the backlog
    elif time > next_publish_time:
        until = time
    if until is not None:
        await _cut(connection, seek, until, keep_from=False)
        next_publish_time, next_seq = await position_at(connection, seek, until)
        until_seq = next_seq
    _, first_seq = await position_at(connection, seek, time)
    if until_seq is not None:  # messages published between the two reads are after both
        first_seq = min(first_seq, until_seq)
    cut = {"first_seq": first_seq, "until_seq": until_seq, "ordered": seek.ordered}
    await connection.exec_driver_sql(_CUT_ORDERED_RUNS, {**seek.where, **cut})
    outside = {"since": time, "until": until or _END_OF_TIME}
    await connection.exec_driver_sql(_DELETE_ATTEMPTS_OUTSIDE, {**seek.where, **outside})
    await connection.exec_driver_sql(
        _RENEW_ATTEMPTS, {**seek.where, "first_attempt_id": seek.first_attempt_id, "now": seek.now}
    )
    await _move(connection, seek, next_publish_time, next_seq)
    await _write_down(connection, seek, before, next_seq)
    asked_since = time if time <= cursor[0] else None
    return await _count(connection, seek, cursor, (next_publish_time, next_seq), asked_since)


async def seek_to_snapshot(
    connection: ResourceConnection, seek: ShardSeek, *, snapshot_id: int
) -> ShardReplay | None:
    """Make outstanding exactly what the snapshot holds; within the caller's transaction.

    None if there is no cursor.  Of a shard that the topic got later than the snapshot, which the caller has locked,
    all comes again; the subscription's private one is left as it is, if that came later.
    """
    cursor = await lock(connection, seek)
    if cursor is None:
        return None
    held = await _rows(connection, _READ_SNAPSHOT_POSITION, {"snapshot_id": snapshot_id, "shard_id": seek.shard_id})
    if not held:
        [(private,)] = await _rows(connection, _IS_PRIVATE, {"shard_id": seek.shard_id})
        if private:
            return ShardReplay(0)
        held = [await position_at(connection, seek, _EVER)]
    [row] = held
    before = await _unsettled(connection, seek, cursor[1])
    await connection.exec_driver_sql(_DELETE_ALL_ATTEMPTS, seek.where)
    restored = {
        "snapshot_id": snapshot_id,
        "next_seq": row[1],
        "first_attempt_id": seek.first_attempt_id,
        "now": seek.now,
    }
    restore = _RESTORE_ORDERED_ATTEMPTS if seek.ordered else _RESTORE_ATTEMPTS
    await connection.exec_driver_sql(restore, {**seek.where, **restored})
    await _move(connection, seek, *row)
    await _write_down(connection, seek, before, row[1])
    asked_since = row[0] if row[1] < cursor[1] else None
    return await _count(connection, seek, cursor, (row[0], row[1]), asked_since)


async def read_positions(
    connection: Connection,
    *,
    subscription_id: int,
    retained_since: datetime = _EVER,
    filter_path: str | None = None,
    body_path: str | None = None,
) -> list[Position]:
    """Returns the position of a subscription in each of its shards.

    Messages older than `retained_since` are not delivered, and so not counted.
    """
    max_scanned = most_compared(MAX_SCANNED, body_path)
    wanted = {
        "subscription_id": subscription_id,
        "retained_since": retained_since,
        "filter_path": filter_path,
        "body_path": body_path,
        "max_scanned": max_scanned,
    }
    cursor = await connection.execute(_READ_POSITIONS, wanted)
    return [replace(Position(*row), max_scanned=max_scanned) for row in await cursor.fetchall()]


async def _count(
    connection: ResourceConnection,
    seek: ShardSeek,
    before: tuple[datetime, int],
    after: tuple[datetime, int],
    asked_since: datetime | None,
) -> ShardReplay:
    """Counts the messages that are delivered again now that the cursor is at `after`.

    Sequences are dense, so few rows need to be read.
    """
    first = after
    if after[1] < before[1] and after[0] < seek.retained_since:
        first = max(after, await position_at(connection, seek, seek.retained_since), key=lambda at: at[1])
    wanted = {
        **seek.where,
        "retained_since": seek.retained_since,
        "filter_path": seek.filter_path,
        "body_path": seek.body_path,
        "from_publish_time": first[0],
        "from_seq": first[1],
        "until_publish_time": before[0],
        "until_seq": before[1],
        "max_scanned": MAX_COUNTED,
        "max_compared": most_compared(MAX_COUNTED, seek.body_path),
    }
    [(outstanding, waiting, scanned, matching)] = await _rows(connection, _COUNT_REPLAYED, wanted)
    passed = max(before[1] - first[1], 0) if seek.filter_path is None else matching
    at_least = waiting >= MAX_COUNTED or scanned >= wanted["max_compared"]
    return ShardReplay(outstanding + waiting + passed, at_least, asked_since)


async def _rows(connection: ResourceConnection, statement: str, parameters: dict[str, Any]) -> Sequence[Any]:
    return (await connection.exec_driver_sql(statement, parameters)).all()


async def lock(connection: ResourceConnection, seek: ShardSeek) -> tuple[datetime, int] | None:
    """Locks the cursor until the transaction ends and returns its position; None: there is no cursor."""
    locked = await _rows(connection, _LOCK_CURSORS, seek.where_many(1))
    if not locked:
        return None
    await connection.exec_driver_sql(_LOCK_ATTEMPTS, seek.where)
    [(_, next_publish_time, next_seq, *_)] = locked
    return next_publish_time, next_seq


async def _cut(connection: ResourceConnection, seek: ShardSeek, time: datetime, *, keep_from: bool) -> None:
    """Clear the bits of one side of `time` in the attempts that have messages on both."""
    straddling = await _rows(connection, _READ_STRADDLING_ATTEMPTS, {**seek.where, "time": time})
    if not straddling:
        return
    _, boundary = await position_at(connection, seek, time)
    kept: Callable[[int], bool] = boundary.__le__ if keep_from else boundary.__gt__
    await connection.exec_driver_sql(
        _REPLACE_ATTEMPTS,
        {
            **seek.where_many(len(straddling)),
            "attempt_ids": [attempt_id for attempt_id, *_ in straddling],
            "parts": [part for _, part, *_ in straddling],
            "open": [_kept_bits(seqs, bits, kept) for *_, seqs, bits in straddling],
            "statuses": ["pending"] * len(straddling),
            "next_delivery_ats": [seek.now] * len(straddling),
        },
    )


async def position_at(connection: ResourceConnection, seek: ShardSeek, time: datetime) -> tuple[datetime, int]:
    """Returns the position of the first message published at or after `time`.

    If there is none, it is that of the next message.
    """
    [(publish_time, seq)] = await _rows(connection, _READ_FIRST_POSITION, {"shard_id": seek.shard_id, "time": time})
    return publish_time, seq


def _kept_bits(seqs: str, bits: str, kept: Callable[[int], bool]) -> str:
    all_seqs = from_multirange(seqs)
    return to_bits([ordinal for ordinal in from_bits(bits) if kept(all_seqs[ordinal])], len(bits))


async def _unsettled(connection: ResourceConnection, seek: ShardSeek, next_seq: int) -> list[Range]:
    """Returns the sequences that are delivered and not settled, those that wait for their ordering key, and those
    that the cursor has not passed.
    """
    rows = await _rows(connection, _READ_UNSETTLED, {**seek.where, "max_waiting": MAX_COUNTED})
    seqs: set[int] = set()
    for held, bits, of_key, waiting in rows:
        all_seqs = from_multirange(held)
        seqs.update(all_seqs[ordinal] for ordinal in unsettled(bits, ordered=of_key))
        seqs.update(from_multirange(waiting))
    return [*ranges_of(sorted(seq for seq in seqs if seq < next_seq)), (next_seq, _END_OF_LOG)]


async def _write_down(
    connection: ResourceConnection, seek: ShardSeek, before: Sequence[Range], next_seq: int
) -> None:
    """Journal what the seek has settled and what it replays, whatever the subscription's journal is set to."""
    after = await _unsettled(connection, seek, next_seq)
    dropped = (Event.ACKED, PURGED) if seek.is_purge else (Event.SKIPPED, "")
    events = ((dropped, without(before, after)), ((Event.REPLAYED, ""), without(after, before)))
    rows = [
        row
        for (event, answer), of in events
        for row in rows_of(None, seek.subscription_id, event, 0, of, author=seek.author, answer=answer, span=True)
    ]
    await write_journal(connection, shard_id=seek.shard_id, rows=rows, now=seek.now)


async def _move(connection: ResourceConnection, seek: ShardSeek, publish_time: datetime, seq: int) -> None:
    floor = first_due_floor(seek.now)
    position = {
        "next_publish_times": [publish_time],
        "next_seqs": [seq],
        "due_floors": [floor],
        "due_firsts": [True],
    }
    await connection.exec_driver_sql(_MOVE_CURSORS, {**seek.where_many(1), **position})
    await connection.exec_driver_sql(_LOWER_FIRST_SEQUENCE, seek.where)
