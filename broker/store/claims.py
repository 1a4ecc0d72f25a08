"""Claims: handing out messages under a cursor's lock (A4, A7, design section 4).

A claim is one transaction in two round trips.  The first locks the cursor, then (later statements, later
snapshots) locks the rows that are due and reads fresh messages; the second writes what was decided in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import Delivery, Demand, Share, StoredMessage, due_quota, share_out
from broker.domain.retry_policy import RetryPolicy
from broker.domain.sequences import to_multirange
from broker.store import statements
from broker.store.due_attempts import DueAttempt, ask, due_attempt, ready_attempts, replacements, times_left
from broker.store.hot_connection import Bound, HotConnection
from broker.store.statements import BEGIN, COMMIT, NO_WAIT

_LOCK_CURSOR = statements.hot("lock_cursor")
_LOCK_DUE_ATTEMPTS = statements.hot("lock_due_attempts")
_READ_FRESH_MESSAGES = statements.hot("read_fresh_messages")
_READ_LARGE_MESSAGES = statements.hot("read_large_messages")
_READ_MATCHING_MESSAGES = statements.hot("read_matching_messages")
_READ_DUE_MESSAGES = statements.hot("read_due_messages")
_READ_NEXT_DELIVERY_AT = statements.hot("read_next_delivery_at")
_INSERT_DELIVERY_ATTEMPTS = statements.hot("insert_delivery_attempts")
_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_MOVE_CURSOR = statements.hot("move_cursor")

# Ends a claim that has locked and changed nothing.
_NOTHING_CHANGED: tuple[Bound, ...] = ((NO_WAIT, {}), (COMMIT, {}))

MAX_DUE_ROWS = 200  # rows, of up to 1,000 messages each, that one claim looks at
MAX_SCANNED = 10_000  # messages that one look of a filtered claim reads: some 10 ms
MAX_LOOKS = 20  # after which a claim answers with nothing, though there is more to look at
# The floor stays this far behind: a nack may carry a time that is a little old when it commits.
DUE_FLOOR_MARGIN = timedelta(seconds=60)
# One row may cover this many times as many sequences as it holds; a wider one would make its next
# redelivery read past too many messages that are not its own.
_MAX_SPREAD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One claim on one shard of a subscription, on behalf of several pulls (`demands`).

    `now` is the database's time; messages published before `retained_since` are not delivered any more;
    `jitter` (0 to 0.1) lengthens retry delays.  `filter_path` is a jsonpath (None: every message matches).
    """

    shard_id: int
    subscription_id: int
    demands: Sequence[Demand]
    ack_deadline: timedelta
    retained_since: datetime
    now: datetime
    retry_policy: RetryPolicy | None = None
    jitter: float = 0.0
    filter_path: str | None = None
    max_attempts: int | None = None
    exactly_once: bool = False

    @property
    def where(self) -> dict[str, Any]:
        return {"shard_id": self.shard_id, "subscription_id": self.subscription_id}

    @property
    def max_messages(self) -> int:
        return sum(demand.max_messages for demand in self.demands)

    @property
    def max_bytes(self) -> int:
        return sum(demand.max_bytes for demand in self.demands)


@dataclass(frozen=True, slots=True)
class Claimed:
    """The deliveries for each demand, in the order of the demands.

    `found` is False if the subscription has no cursor in this shard: it was deleted.  `next_delivery_at` is when
    a redelivery that this claim left behind falls due, if it knows of one.  `look_again`: nothing was handed out,
    but not all that could be was looked at.
    """

    deliveries: Sequence[Sequence[Delivery]]
    found: bool = True
    next_delivery_at: datetime | None = None
    look_again: bool = False


@dataclass(frozen=True, slots=True)
class _Fresh:
    """Messages from the cursor on.  `end` is just past the last one looked at; `all_seen`: there were no more."""

    messages: list[StoredMessage]
    end: tuple[datetime, int] | None
    all_seen: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """`due_beyond`: when the first of the due rows that were not read may be due (None: all were read)."""

    cursor: tuple[datetime, int, datetime] | None
    due: list[DueAttempt]
    due_beyond: datetime | None
    fresh: _Fresh

    @property
    def due_is_complete(self) -> bool:
        return self.due_beyond is None


async def claim_messages(connection: HotConnection, request: ClaimRequest, attempt_ids: AttemptIds) -> Claimed:
    """Hand out messages of a subscription, durably, each under a new attempt id.

    Messages that are due again go first, up to half of the claim while there are fresh ones.
    """
    for _ in range(MAX_LOOKS):
        claimed = await _claim_once(connection, request, attempt_ids)
        # What was looked at may all have been messages that do not match, or rows whose retry delay only begins.
        if not claimed.look_again:
            break
    return claimed


async def _claim_once(connection: HotConnection, request: ClaimRequest, attempt_ids: AttemptIds) -> Claimed:
    nothing: list[list[Delivery]] = [[] for _ in request.demands]
    try:
        found = await _lock_and_read(connection, request)
        if found.cursor is None:
            await connection.run(*_NOTHING_CHANGED)
            return Claimed(nothing, found=False)
        if not found.due and found.fresh.end is None:
            upcoming, *_ = await connection.run((_READ_NEXT_DELIVERY_AT, request.where), *_NOTHING_CHANGED)
            return Claimed(nothing, next_delivery_at=upcoming[0][0] if upcoming else None)
        redeliveries = await _read_redeliveries(connection, request, found)
        shares = share_out(request.demands, redeliveries, found.fresh.messages)
        _settle(found.due, shares)
        deliveries, rows = _deliveries(request, shares, attempt_ids)
        fresh_taken = sum(len(share.fresh) for share in shares)
        await connection.run(*_writes(request, found, rows, fresh_taken), (COMMIT, {}))
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    return Claimed(
        deliveries,
        next_delivery_at=min(times_left(found.due), default=None),
        look_again=not rows and not (found.due_is_complete and found.fresh.all_seen),
    )


async def _lock_and_read(connection: HotConnection, request: ClaimRequest) -> _Found:
    max_rows = min(request.max_messages, MAX_DUE_ROWS)
    _, locked, due, fresh = await connection.run(
        (BEGIN, {}),
        (_LOCK_CURSOR, request.where),
        (_LOCK_DUE_ATTEMPTS, {**request.where, "now": request.now, "max_rows": max_rows}),
        _read_fresh(request),
    )
    cursor = (locked[0][0], locked[0][1], locked[0][2]) if locked else None
    if request.filter_path is None and fresh and fresh[0][-1] is None:
        [fresh] = await connection.run((_READ_LARGE_MESSAGES, {**_window(request), "max_bytes": request.max_bytes}))
    found = _all_messages(fresh) if request.filter_path is None else _matching_messages(fresh)
    attempts = [due_attempt(row) for row in due]
    # Taken now: a row whose retry delay begins gets a later time, and those beyond may be due before that.
    due_beyond = max(attempt.next_delivery_at for attempt in attempts) if len(due) == max_rows else None
    return _Found(cursor, attempts, due_beyond, found)


def _window(request: ClaimRequest) -> dict[str, Any]:
    return {
        **request.where,
        "retained_since": request.retained_since,
        "max_messages": request.max_messages,
    }


def _read_fresh(request: ClaimRequest) -> Bound:
    if request.filter_path is None:
        max_size = request.max_bytes // request.max_messages
        return _READ_FRESH_MESSAGES, {**_window(request), "max_size": max_size}
    filtered = {
        "max_bytes": request.max_bytes,
        "filter_path": request.filter_path,
        "max_scanned": MAX_SCANNED,
    }
    return _READ_MATCHING_MESSAGES, {**_window(request), **filtered}


def _all_messages(rows: Sequence[Sequence[Any]]) -> _Fresh:
    """Up to the first that came without its data: it is large, and the next claim reads it."""
    data = [row[-1] for row in rows]
    small = data.index(None) if None in data else len(data)
    messages = [StoredMessage(*row) for row in rows[:small]]
    return _Fresh(messages, _just_past(messages[-1]) if messages else None, all_seen=True)


def _matching_messages(rows: Sequence[Sequence[Any]]) -> _Fresh:
    messages = [StoredMessage(*columns) for *columns, matches, _ in rows if matches]
    if not rows:
        return _Fresh([], None, all_seen=True)
    *columns, _, looked_at = rows[-1]
    return _Fresh(messages, _just_past(StoredMessage(*columns)), all_seen=looked_at < MAX_SCANNED)


def _just_past(message: StoredMessage) -> tuple[datetime, int]:
    return message.publish_time, message.seq + 1


async def _read_redeliveries(
    connection: HotConnection, request: ClaimRequest, found: _Found
) -> list[tuple[int, StoredMessage]]:
    """The due messages that this claim may take, with the number of the attempt that it would be."""
    ready = ready_attempts(
        found.due,
        now=request.now,
        retry_policy=request.retry_policy,
        jitter=request.jitter,
        max_attempts=request.max_attempts,
    )
    ask(ready, due_quota(request.max_messages, len(found.fresh.messages)))
    asked = [row for row in ready if row.asked]
    if not asked:
        return []
    wanted = {
        "shard_id": request.shard_id,
        "first_publish_times": [row.first_publish_time for row in asked],
        "last_publish_times": [row.last_publish_time for row in asked],
        "seqs": [to_multirange(row.asked) for row in asked],
        "retained_since": request.retained_since,
        "filter_path": request.filter_path,
        "max_bytes": request.max_bytes,
    }
    [messages] = await connection.run((_READ_DUE_MESSAGES, wanted))
    existing = {message.seq: message for message in (StoredMessage(*row) for row in messages)}
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


def _settle(due: Sequence[DueAttempt], shares: Sequence[Share]) -> None:
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


def _runs(share: Share) -> Iterator[tuple[int, Sequence[StoredMessage]]]:
    """A share as rows: one an attempt number, split where sequences lie far apart."""
    for number, messages in share.redelivered.items():
        yield from ((number, run) for run in _close_runs(sorted(messages, key=lambda message: message.seq)))
    yield from ((1, run) for run in _close_runs(share.fresh))


def _close_runs(messages: Sequence[StoredMessage]) -> Iterator[Sequence[StoredMessage]]:
    """Redeliveries, and matches of a filter, may be anywhere in the log."""
    if messages and messages[-1].seq - messages[0].seq <= _MAX_SPREAD * len(messages):
        yield messages
        return
    run: list[StoredMessage] = []
    for message in messages:
        if run and message.seq - run[0].seq > _MAX_SPREAD * (len(run) + 1):
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def _writes(
    request: ClaimRequest, found: _Found, deliveries: Sequence[Delivery], fresh_taken: int
) -> Iterator[Bound]:
    assert found.cursor is not None
    changed = replacements(found.due)
    if changed:
        yield _REPLACE_ATTEMPTS, {**request.where, **changed}
    if deliveries:
        yield _INSERT_DELIVERY_ATTEMPTS, {**request.where, **_attempt_rows(request, deliveries)}
    *position, due_floor = found.cursor
    next_publish_time, next_seq = _new_position(found.fresh, fresh_taken) or position
    moved = {
        "next_publish_time": next_publish_time,
        "next_seq": next_seq,
        "due_floor": max(due_floor, _due_floor(request.now, found)),
    }
    yield _MOVE_CURSOR, {**request.where, **moved}


def _new_position(fresh: _Fresh, taken: int) -> tuple[datetime, int] | None:
    """Just past the last message looked at, or past the last one handed out if some were left over (None: stay)."""
    if taken == len(fresh.messages):
        return fresh.end
    return _just_past(fresh.messages[taken - 1]) if taken else None


def _attempt_rows(request: ClaimRequest, deliveries: Sequence[Delivery]) -> Mapping[str, Any]:
    return {
        "now": request.now,
        "exactly_once": request.exactly_once,
        "attempt_ids": [delivery.attempt_id for delivery in deliveries],
        "attempt_numbers": [delivery.attempt_number for delivery in deliveries],
        "ack_deadlines": [request.now + request.ack_deadline] * len(deliveries),
        "seqs": [to_multirange([m.seq for m in delivery.messages]) for delivery in deliveries],
        "open": ["1" * len(delivery.messages) for delivery in deliveries],
        "first_publish_times": [delivery.messages[0].publish_time for delivery in deliveries],
        "last_publish_times": [delivery.messages[-1].publish_time for delivery in deliveries],
    }


def _due_floor(now: datetime, found: _Found) -> datetime:
    """The time before which nothing is due any more once this claim has committed."""
    limits = [now - DUE_FLOOR_MARGIN, *times_left(found.due)]
    return min(limits if found.due_beyond is None else [*limits, found.due_beyond])
