"""Claims: handing out messages under a cursor's lock (A4, A6, A7, design section 4).

A claim is one transaction.  Its first round trip locks the cursor, then (later statements, later snapshots) locks
the rows that are due and reads fresh messages; the last writes what was decided in between.  What is due is read
between the two, where there is any; an ordered subscription reads fresh messages only when it knows which keys are
free.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import (
    Delivery,
    Demand,
    Share,
    StoredMessage,
    as_attempts,
    due_quota,
    even_parts,
    left_over,
    share_out,
)
from broker.domain.sequences import to_multirange
from broker.store import statements
from broker.store.claim_request import ClaimRequest
from broker.store.due_attempts import (
    DueAttempt,
    ask,
    due_attempt,
    due_floor_after,
    ready_attempts,
    replacements,
    run_columns,
    times_left,
)
from broker.store.fresh_messages import NOTHING_FRESH, Fresh, fresh_messages, fresh_statement
from broker.store.hot_connection import NOTHING_CHANGED, Bound, HotConnection
from broker.store.ordered_runs import (
    OrderedRun,
    clear_away,
    give_runs,
    look_for_messages,
    new_runs,
    ordered_run,
    rewrite_runs,
    share_in_order,
)
from broker.store.statements import BEGIN, COMMIT

_LOCK_CURSOR = statements.hot("lock_cursor")
_LOCK_DUE_ATTEMPTS = statements.hot("lock_due_attempts")
_READ_DUE_MESSAGES = statements.hot("read_due_messages")
_READ_NEXT_DELIVERY_AT = statements.hot("read_next_delivery_at")
_INSERT_DELIVERY_ATTEMPTS = statements.hot("insert_delivery_attempts")
_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_MOVE_CURSOR = statements.hot("move_cursor")


MAX_DUE_ROWS = 200  # rows, of up to 1,000 messages each, that one claim looks at
# The same, of an ordered subscription: twice as many as it may hand out, but at most so many.  Most are of one
# message, and those of keys that are settled only wait to be let go: as many as earlier claims have handed out.
MAX_DUE_KEYS = 4_000
MAX_LOOKS = 20  # after which a claim answers with nothing, though there is more to look at


@dataclass(frozen=True, slots=True)
class Claimed:
    """The deliveries for each demand, in the order of the demands.

    `found` is False if the subscription has no cursor in this shard: it was deleted.  `next_delivery_at` is when
    a redelivery that this claim left behind falls due, if it knows of one.  `look_again`: nothing was handed out,
    but not all that could be was looked at.  `looked_ahead`: `next_delivery_at` is the first of all that is out,
    not only of what this claim met.
    """

    deliveries: Sequence[Sequence[Delivery]]
    found: bool = True
    next_delivery_at: datetime | None = None
    look_again: bool = False
    looked_ahead: bool = False


@dataclass(slots=True)
class _Found:
    """What a claim has locked and read so far.

    `to_give`: the runs whose next messages may go out.  `due_beyond`: the time that due rows which were not read do
    not come before (None: all were read).
    """

    cursor: tuple[datetime, int, datetime] | None
    due: list[DueAttempt]
    runs: list[OrderedRun]
    due_beyond: datetime | None
    fresh: Fresh[StoredMessage] = NOTHING_FRESH
    to_give: Sequence[OrderedRun] = ()

    @property
    def all_seen(self) -> bool:
        lost = any(run.lost for run in self.runs) or any(row.lost for row in self.due)
        return self.due_beyond is None and self.fresh.all_seen and not lost

    @property
    def rows(self) -> Iterator[DueAttempt | OrderedRun]:
        yield from self.due
        yield from self.runs


@dataclass(slots=True)
class _Decided:
    """Deliveries by demand, and which kind of row each is to have.  `considered` fresh messages are passed."""

    by_demand: list[list[Delivery]]
    plain: list[Delivery] = field(default_factory=list)
    first_of_keys: list[Delivery] = field(default_factory=list)
    new_attempt_ids: dict[int, int] = field(default_factory=dict)
    considered: int = 0


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
            await connection.run(*NOTHING_CHANGED)
            return Claimed(nothing, found=False)
        if not any(found.rows) and found.fresh.end is None:
            upcoming, *_ = await connection.run((_READ_NEXT_DELIVERY_AT, request.where), *NOTHING_CHANGED)
            next_delivery_at = upcoming[0][0] if upcoming else None
            return Claimed(nothing, next_delivery_at=next_delivery_at, looked_ahead=True)
        decided = await _decide(connection, request, found, attempt_ids)
        await connection.run(*_writes(request, found, decided), (COMMIT, {}))
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    return Claimed(
        decided.by_demand,
        next_delivery_at=min(_times_left(found), default=None),
        look_again=not any(decided.by_demand) and not found.all_seen,
    )


async def _lock_and_read(connection: HotConnection, request: ClaimRequest) -> _Found:
    max_rows = min(request.max_messages, MAX_DUE_ROWS)
    if request.ordered:
        max_rows = min(max(2 * request.max_messages, MAX_DUE_ROWS), MAX_DUE_KEYS)
    statements_ = [
        (BEGIN, {}),
        (_LOCK_CURSOR, request.where),
        (_LOCK_DUE_ATTEMPTS, {**request.where, "now": request.now, "max_rows": max_rows}),
    ]
    if not request.ordered:
        statements_.append(fresh_statement(request))
    _, locked, due, *fresh = await connection.run(*statements_)
    # The last row, if there is any, is about those before it; fewer may have come back than were found.
    *due, [*_, found_rows, found_until] = due or [(0, None)]
    due = [row[:_COLUMNS] for row in due]
    found = _Found(
        cursor=(locked[0][0], locked[0][1], locked[0][2]) if locked else None,
        due=[due_attempt(row) for row in due if row[_ORDERING_KEY] is None],
        runs=[ordered_run(row) for row in due if row[_ORDERING_KEY] is not None],
        # Noted now: a row whose retry delay begins gets a later time, and those beyond may be due before that.
        due_beyond=found_until if found_rows == max_rows else None,
    )
    found.to_give = await look_for_messages(connection, request, found.runs)
    if request.ordered:
        *_, rows = await connection.run(*clear_away(request, found.runs), fresh_statement(request))
    else:
        [rows] = fresh
    found.fresh = await fresh_messages(connection, request, rows)
    return found


_ORDERING_KEY = 9  # its place in a row of lock_due_attempts.sql
_COLUMNS = 12  # of such a row that are a delivery attempt's


async def _decide(
    connection: HotConnection, request: ClaimRequest, found: _Found, attempt_ids: AttemptIds
) -> _Decided:
    """Share out what was found."""
    quota = due_quota(request.max_messages, len(found.fresh.messages))
    demands = _even_parts(request, found, quota)
    given = give_runs(found.to_give, demands, quota, request.preferred)
    of_keys = [[message for run in runs for message in run.taken] for runs in given]
    quota -= sum(map(len, of_keys))
    demands = left_over(demands, of_keys)
    redeliveries = await _read_redeliveries(connection, request, found.due, quota)
    if request.ordered:
        shares = share_out(demands, redeliveries, ())
        demands = left_over(demands, [share.messages for share in shares])
        fresh, considered = share_in_order(demands, found.fresh.messages, request.max_run, request.preferred)
        for share, messages in zip(shares, fresh, strict=True):
            share.fresh = messages
    else:
        shares = share_out(demands, redeliveries, found.fresh.messages, fresh_bytes=found.fresh.size)
        considered = sum(len(share.fresh) for share in shares)
    _settle(found.due, shares)
    return _deliveries(request, found, given, shares, attempt_ids, considered)


def _even_parts(request: ClaimRequest, found: _Found, quota: int) -> Sequence[Demand]:
    """The demands, those that share evenly bounded by their part of what was found (or more than was found)."""
    if len(request.demands) == 1:
        return request.demands
    due = min(sum(len(row.open) for row in found.due), quota)
    available = due + sum(len(run.found) for run in found.to_give) + len(found.fresh.messages)
    among = available
    if request.ordered:  # a key goes to one demand
        among = due + len(found.to_give) + len({m.ordering_key or m.seq for m in found.fresh.messages})
    return even_parts(request.demands, available, among=among)


async def _read_redeliveries(
    connection: HotConnection, request: ClaimRequest, due: Sequence[DueAttempt], quota: int
) -> list[tuple[int, StoredMessage]]:
    """The due messages that this claim may take, with the number of the attempt that it would be."""
    ready = ready_attempts(
        due,
        now=request.now,
        retry_policy=request.retry_policy,
        jitter=request.jitter,
        max_attempts=request.max_attempts,
    )
    ask(ready, quota)
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


def _settle(due: Sequence[DueAttempt], shares: Sequence[Share[StoredMessage]]) -> None:
    taken = {message.seq for share in shares for messages in share.redelivered.values() for message in messages}
    for row in due:
        row.drop([seq for seq in row.asked if seq in row.open and seq in taken])


def _deliveries(
    request: ClaimRequest,
    found: _Found,
    given: Sequence[Sequence[OrderedRun]],
    shares: Sequence[Share[StoredMessage]],
    attempt_ids: AttemptIds,
    considered: int,
) -> _Decided:
    """What each demand gets, under which attempt ids."""
    lost = [run for run in found.runs if run.lost]
    plain = [list(_plain_runs(share, request.ordered)) for share in shares]
    keyed = [list(_runs_by_key(share.fresh)) if request.ordered else [] for share in shares]
    count = len(lost) + sum(map(len, given)) + sum(map(len, plain)) + sum(map(len, keyed))
    ids = iter(attempt_ids.take(count, now=request.now))
    decided = _Decided([], considered=considered)
    for runs, plain_runs, key_runs in zip(given, plain, keyed, strict=True):
        decided.new_attempt_ids |= {run.attempt_id: next(ids) for run in runs}
        again = [run.delivery(request.shard_id, decided.new_attempt_ids[run.attempt_id]) for run in runs]
        others = [Delivery(request.shard_id, next(ids), number, run) for number, run in plain_runs]
        first = [Delivery(request.shard_id, next(ids), 1, run, ordered=True) for run in key_runs]
        decided.by_demand.append(again + others + first)
        decided.plain += others
        decided.first_of_keys += first
    decided.new_attempt_ids |= {run.attempt_id: next(ids) for run in lost}
    return decided


def _plain_runs(share: Share[StoredMessage], ordered: bool) -> Iterator[tuple[int, Sequence[StoredMessage]]]:
    fresh = [message for message in share.fresh if message.ordering_key is None] if ordered else share.fresh
    return as_attempts(share.redelivered, fresh)


def _runs_by_key(fresh: Iterable[StoredMessage]) -> Iterable[Sequence[StoredMessage]]:
    runs: dict[str, list[StoredMessage]] = {}
    for message in fresh:
        if message.ordering_key is not None:
            runs.setdefault(message.ordering_key, []).append(message)
    return runs.values()


def _writes(request: ClaimRequest, found: _Found, decided: _Decided) -> Iterator[Bound]:
    assert found.cursor is not None
    at = request.handed_out_at()
    yield from rewrite_runs(request, found.runs, decided.new_attempt_ids, at)
    changed = replacements(found.due)
    if changed:
        yield _REPLACE_ATTEMPTS, {**request.where, **changed}
    if decided.plain:
        yield _INSERT_DELIVERY_ATTEMPTS, {**request.where, **_attempt_rows(request, decided.plain, at)}
    yield from new_runs(request, decided.first_of_keys, at)
    *position, due_floor = found.cursor
    next_publish_time, next_seq = found.fresh.position_after(decided.considered) or position
    moved = {
        "next_publish_time": next_publish_time,
        "next_seq": next_seq,
        "due_floor": max(due_floor, due_floor_after(request.now, _times_left(found), found.due_beyond)),
    }
    yield _MOVE_CURSOR, {**request.where, **moved}


def _attempt_rows(request: ClaimRequest, deliveries: Sequence[Delivery], at: datetime) -> Mapping[str, Any]:
    return {
        "now": at,
        "exactly_once": request.exactly_once,
        "attempt_ids": [delivery.attempt_id for delivery in deliveries],
        "attempt_numbers": [delivery.attempt_number for delivery in deliveries],
        "ack_deadlines": [at + request.ack_deadline] * len(deliveries),
        **run_columns([delivery.messages for delivery in deliveries]),
    }


def _times_left(found: _Found) -> Iterator[datetime]:
    """When what this claim leaves behind is due."""
    yield from times_left(found.due)
    yield from (run.next_delivery_at for run in found.runs if run.stays_due)
