"""Claims: handing out messages under a cursor's lock (A4, A7, design section 4).

A claim is one transaction in two round trips.  The first locks the cursor, then (later statements, later
snapshots) locks the rows that are due and reads fresh messages; the second writes what was decided in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import Delivery, Demand, Share, StoredMessage, due_quota, share_out
from broker.domain.retry_policy import RetryPolicy
from broker.domain.sequences import from_bits, from_multirange, to_bits, to_multirange
from broker.store import statements
from broker.store.database import Connection, end_unchanged, pipelined

_LOCK_CURSOR = statements.load("lock_cursor")
_LOCK_DUE_ATTEMPTS = statements.load("lock_due_attempts")
_READ_FRESH_MESSAGES = statements.load("read_fresh_messages")
_READ_DUE_MESSAGES = statements.load("read_due_messages")
_READ_NEXT_DELIVERY_AT = statements.load("read_next_delivery_at")
_INSERT_DELIVERY_ATTEMPTS = statements.load("insert_delivery_attempts")
_REPLACE_ATTEMPTS = statements.load("replace_attempts")
_MOVE_CURSOR = statements.load("move_cursor")

MAX_DUE_ROWS = 200  # rows, of up to 1,000 messages each, that one claim looks at
# The floor stays this far behind: a nack may carry a time that is a little old when it commits.
DUE_FLOOR_MARGIN = timedelta(seconds=60)
# One row may cover this many times as many sequences as it holds; a wider one would make its next
# redelivery read past too many messages that are not its own.
_MAX_SPREAD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One claim on one shard of a subscription, on behalf of several pulls (`demands`).

    `now` is the database's time; messages published before `retained_since` are not delivered any more;
    `jitter` (0 to 0.1) lengthens retry delays.
    """

    shard_id: int
    subscription_id: int
    demands: Sequence[Demand]
    ack_deadline: timedelta
    retained_since: datetime
    now: datetime
    retry_policy: RetryPolicy | None = None
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Claimed:
    """The deliveries for each demand, in the order of the demands.

    `found` is False if the subscription has no cursor in this shard: it was deleted.  `next_delivery_at` is when
    a redelivery that this claim left behind falls due, if it knows of one.  `look_again`: nothing was handed out,
    but not every due row was looked at.
    """

    deliveries: Sequence[Sequence[Delivery]]
    found: bool = True
    next_delivery_at: datetime | None = None
    look_again: bool = False


@dataclass(slots=True)
class _DueRow:
    attempt_id: int
    part: int
    status: str
    attempt_number: int
    next_delivery_at: datetime
    length: int
    open: dict[int, int]  # sequence -> its bit's position
    first_publish_time: datetime
    last_publish_time: datetime
    changed: bool = False
    asked: list[int] = field(default_factory=list)

    @property
    def bits(self) -> str:
        return to_bits(self.open.values(), self.length)

    def drop(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            del self.open[seq]
            self.changed = True


@dataclass(frozen=True, slots=True)
class _Found:
    cursor: tuple[datetime, int, datetime] | None
    due: list[_DueRow]
    due_is_complete: bool
    fresh: list[StoredMessage]


async def claim_messages(connection: Connection, request: ClaimRequest, attempt_ids: AttemptIds) -> Claimed:
    """Hand out messages of a subscription, durably, each under a new attempt id.

    Messages that are due again go first, up to half of the claim while there are fresh ones.
    """
    while True:
        claimed = await _claim_once(connection, request, attempt_ids)
        # A look at rows whose retry delay had only to begin may hide others that are ready behind them.
        if not claimed.look_again:
            return claimed


async def _claim_once(connection: Connection, request: ClaimRequest, attempt_ids: AttemptIds) -> Claimed:
    nothing: list[list[Delivery]] = [[] for _ in request.demands]
    async with pipelined(connection):
        found = await _lock_and_read(connection, request)
        if found.cursor is None:
            await end_unchanged(connection)
            return Claimed(nothing, found=False)
        if not found.due and not found.fresh:
            upcoming = await connection.execute(_READ_NEXT_DELIVERY_AT, _where(request))
            row = await upcoming.fetchone()
            await end_unchanged(connection)
            return Claimed(nothing, next_delivery_at=row[0] if row else None)
        redeliveries = await _read_redeliveries(connection, request, found)
        shares = share_out(request.demands, redeliveries, found.fresh)
        _settle_due_rows(found.due, shares)
        deliveries, rows = _deliveries(request, shares, attempt_ids)
        await _write(connection, request, found, rows)
        await connection.execute(b"COMMIT")
    return Claimed(
        deliveries,
        next_delivery_at=min(_due_left(found.due), default=None),
        look_again=not rows and not found.due_is_complete,
    )


def _where(request: ClaimRequest) -> dict[str, Any]:
    return {"shard_id": request.shard_id, "subscription_id": request.subscription_id}


async def _lock_and_read(connection: Connection, request: ClaimRequest) -> _Found:
    where = _where(request)
    wanted = sum(demand.max_messages for demand in request.demands)
    max_rows = min(wanted, MAX_DUE_ROWS)
    locked = await connection.execute(_LOCK_CURSOR, where)
    due = await connection.execute(_LOCK_DUE_ATTEMPTS, {**where, "now": request.now, "max_rows": max_rows})
    fresh = await connection.execute(
        _READ_FRESH_MESSAGES,
        {
            **where,
            "retained_since": request.retained_since,
            "max_messages": wanted,
            "max_bytes": sum(demand.max_bytes for demand in request.demands),
        },
        binary=True,
    )
    cursor = await locked.fetchone()
    due_rows = [_due_row(row) for row in await due.fetchall()]
    return _Found(
        cursor, due_rows, len(due_rows) < max_rows, [StoredMessage(*row) for row in await fresh.fetchall()]
    )


def _due_row(row: Sequence[Any]) -> _DueRow:
    attempt_id, part, status, number, next_delivery_at, seqs, bits, first, last = row
    all_seqs = from_multirange(seqs)
    return _DueRow(
        attempt_id=attempt_id,
        part=part,
        status=status,
        attempt_number=number,
        next_delivery_at=next_delivery_at,
        length=len(bits),
        open={all_seqs[position]: position for position in from_bits(bits)},
        first_publish_time=first,
        last_publish_time=last,
    )


async def _read_redeliveries(
    connection: Connection, request: ClaimRequest, found: _Found
) -> list[tuple[int, StoredMessage]]:
    """The due messages that this claim may take, with the number of the attempt that it would be."""
    wanted = sum(demand.max_messages for demand in request.demands)
    ready = _ready_rows(found.due, request)
    _ask(ready, due_quota(wanted, len(found.fresh)))
    asked = [row for row in ready if row.asked]
    if not asked:
        return []
    read = await connection.execute(
        _READ_DUE_MESSAGES,
        {
            "shard_id": request.shard_id,
            "first_publish_times": [row.first_publish_time for row in asked],
            "last_publish_times": [row.last_publish_time for row in asked],
            "seqs": [to_multirange(row.asked) for row in asked],
            "retained_since": request.retained_since,
            "max_bytes": sum(demand.max_bytes for demand in request.demands),
        },
        binary=True,
    )
    existing = {message.seq: message for message in (StoredMessage(*row) for row in await read.fetchall())}
    redeliveries = []
    for row in asked:
        # What the log does not hold any more is not due any more, or it would be due for ever.
        row.drop([seq for seq in row.asked if seq not in existing])
        redeliveries += [
            (row.attempt_number + 1, existing[seq])
            for seq in row.asked
            if seq in existing and existing[seq].data is not None
        ]
    return redeliveries


def _ready_rows(due: Sequence[_DueRow], request: ClaimRequest) -> list[_DueRow]:
    """The due rows whose retry delay is over.  One whose ack deadline has just passed begins its delay (A4)."""
    ready = []
    for row in sorted(due, key=lambda row: (row.next_delivery_at, min(row.open, default=0))):
        if row.status == "delivering" and request.retry_policy is not None:
            delay = request.retry_policy.delay(row.attempt_number) * (1 + request.jitter)
            row.next_delivery_at += delay
            row.changed = True
        if row.next_delivery_at <= request.now:
            ready.append(row)
    return ready


def _ask(rows: Iterable[_DueRow], quota: int) -> None:
    for row in rows:
        row.asked = list(row.open)[:quota]
        row.changed = row.changed or not row.open  # a row without bits only waits to be deleted
        quota -= len(row.asked)


def _settle_due_rows(due: Sequence[_DueRow], shares: Sequence[Share]) -> None:
    taken = {message.seq for share in shares for messages in share.redelivered.values() for message in messages}
    for row in due:
        row.drop([seq for seq in row.asked if seq in row.open and seq in taken])


def _deliveries(
    request: ClaimRequest, shares: Sequence[Share], attempt_ids: AttemptIds
) -> tuple[list[list[Delivery]], list[Delivery]]:
    """The shares as deliveries by demand, and all of them in one list."""
    runs = [list(_runs(share)) for share in shares]
    ids = iter(attempt_ids.take(sum(map(len, runs)), now_microseconds=int(request.now.timestamp() * 1_000_000)))
    by_demand = [
        [Delivery(request.shard_id, next(ids), number, run) for number, run in demand_runs] for demand_runs in runs
    ]
    return by_demand, [delivery for deliveries in by_demand for delivery in deliveries]


def _runs(share: Share) -> Iterator[tuple[int, list[StoredMessage]]]:
    """A share as rows: fresh messages are one, redelivered ones are split where their sequences lie far apart."""
    for number, messages in share.redelivered.items():
        run: list[StoredMessage] = []
        for message in sorted(messages, key=lambda message: message.seq):
            if run and message.seq - run[0].seq > _MAX_SPREAD * (len(run) + 1):
                yield number, run
                run = []
            run.append(message)
        yield number, run
    if share.fresh:
        yield 1, share.fresh


async def _write(
    connection: Connection, request: ClaimRequest, found: _Found, deliveries: Sequence[Delivery]
) -> None:
    assert found.cursor is not None
    where = _where(request)
    changed = [row for row in found.due if row.changed]
    if changed:
        await connection.execute(
            _REPLACE_ATTEMPTS,
            {
                **where,
                "attempt_ids": [row.attempt_id for row in changed],
                "parts": [row.part for row in changed],
                "open": [row.bits for row in changed],
                "next_delivery_ats": [row.next_delivery_at for row in changed],
            },
        )
    if deliveries:
        await connection.execute(_INSERT_DELIVERY_ATTEMPTS, {**where, **_attempt_rows(request, deliveries)})
    next_publish_time, next_seq, due_floor = found.cursor
    for delivery in deliveries:
        last = delivery.messages[-1]
        if delivery.attempt_number == 1 and last.seq >= next_seq:
            next_publish_time, next_seq = last.publish_time, last.seq + 1
    await connection.execute(
        _MOVE_CURSOR,
        {
            **where,
            "next_publish_time": next_publish_time,
            "next_seq": next_seq,
            "due_floor": max(due_floor, _due_floor(request.now, found)),
        },
    )


def _attempt_rows(request: ClaimRequest, deliveries: Sequence[Delivery]) -> Mapping[str, Any]:
    return {
        "now": request.now,
        "attempt_ids": [delivery.attempt_id for delivery in deliveries],
        "attempt_numbers": [delivery.attempt_number for delivery in deliveries],
        "ack_deadlines": [request.now + request.ack_deadline] * len(deliveries),
        "seqs": [to_multirange([m.seq for m in delivery.messages]) for delivery in deliveries],
        "open": ["1" * len(delivery.messages) for delivery in deliveries],
        "first_publish_times": [delivery.messages[0].publish_time for delivery in deliveries],
        "last_publish_times": [delivery.messages[-1].publish_time for delivery in deliveries],
    }


def _due_left(due: Iterable[_DueRow]) -> Iterator[datetime]:
    return (row.next_delivery_at for row in due if row.open)


def _due_floor(now: datetime, found: _Found) -> datetime:
    """The time before which nothing is due any more once this claim has committed."""
    limits = [now - DUE_FLOOR_MARGIN, *_due_left(found.due)]
    if not found.due_is_complete:  # rows beyond the limit are due later than each that was read
        limits += [max(row.next_delivery_at for row in found.due)]
    return min(limits)
