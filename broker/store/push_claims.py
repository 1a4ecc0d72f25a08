"""Claims for push: one transaction for up to 1,000 subscriptions of a shard (A8, C1, design section 5).

The rules are those of claims.py, and so is what it does with each subscription; but every statement is for all of
them, so that a publish to a topic with 10,000 push subscriptions costs some tens of statements.  Three round trips:
the first locks the cursors, leaving alone those that somebody else has locked; the second locks what is due and
looks for fresh messages, without their bodies; the last writes what was decided, reads each body once however many
subscriptions get it, and commits.  Where something is due, one more in between looks which of those messages the
log still has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import Delivery, StoredMessage, UnreadMessage, close_runs
from broker.domain.sequences import to_multirange
from broker.store import statements
from broker.store.claim_request import ClaimRequest
from broker.store.claims import claim_messages
from broker.store.due_attempts import run_columns
from broker.store.hot_connection import NOTHING_CHANGED, Bound, HotConnection
from broker.store.push_claim_request import MAX_BYTES, MAX_DEMANDS, PushClaimed, PushClaimRequest, PushDemand
from broker.store.push_due_attempts import Work, due_statements, find_redeliveries, rewritten_rows, take_due
from broker.store.push_fresh_messages import Cursor, Portion, find_statement, found_fresh, places, with_room
from broker.store.statements import BEGIN, COMMIT

__all__ = ["MAX_DEMANDS", "PushClaimRequest", "PushClaimed", "PushDemand", "claim_for_push"]

_LOCK_CURSORS = statements.hot("lock_cursors")
_READ_CURSORS = statements.hot("read_cursors")
_INSERT_ATTEMPTS = statements.hot("insert_attempts_of_many")
_MOVE_CURSORS = statements.hot("move_cursors")
_READ_MESSAGES = statements.hot("read_due_messages")

_ANY_SIZE = 2**62  # bytes


class _Attempt(NamedTuple):
    """A new row of delivery_attempts."""

    work: Work
    attempt_id: int
    number: int
    messages: Sequence[UnreadMessage]


async def claim_for_push(
    connection: HotConnection, request: PushClaimRequest, attempt_ids: AttemptIds
) -> Mapping[int, PushClaimed]:
    """Hand out messages of each demand's subscription, durably; what became of each, by subscription_id.

    What a claim has no room for (MAX_BYTES of bodies, MAX_LOOKED_AT and MAX_DUE_MESSAGES messages looked at) it
    leaves to the next, and says `more`: ask for those first then.
    """
    try:
        works, outcomes = await _lock_and_read(connection, request)
        if not works:
            await connection.run(*NOTHING_CHANGED)
            return outcomes
        together = [work for work in works if not work.has_keys]
        await find_redeliveries(connection, request, together)
        _share_out(request, together)
        outcomes |= await _write(connection, request, works, together, attempt_ids)
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    for work in works:
        if work.has_keys:
            outcomes[work.demand.subscription_id] = await _claim_alone(connection, request, work, attempt_ids)
    return outcomes


async def _lock_and_read(
    connection: HotConnection, request: PushClaimRequest
) -> tuple[list[Work], dict[int, PushClaimed]]:
    """What there is for those whose cursors could be locked, and what is to be said of the others."""
    ids = [demand.subscription_id for demand in request.demands]
    _, locked = await connection.run((BEGIN, {}), (_LOCK_CURSORS, _of(request, ids)))
    cursors = {subscription_id: Cursor(*columns) for subscription_id, *columns in locked}
    missing = [subscription_id for subscription_id in ids if subscription_id not in cursors]
    held = [demand for demand in request.demands if demand.subscription_id in cursors]
    by_subscription = places(held, cursors)
    works = [Work(d, cursors[d.subscription_id], by_subscription[d.subscription_id]) for d in held]
    looking = [work for work in works if work.demand.look_for_due]
    chosen = with_room(work.place for work in works)
    # In statements of their own, after the lock: what they see is as new as what it shows [T].
    reads: dict[str, Bound] = {}
    if looking:
        reads["due"], reads["upcoming"] = due_statements(request, looking)
    if chosen:
        reads["fresh"] = find_statement(request.shard_id, chosen)
    if missing:
        reads["existing"] = _READ_CURSORS, _of(request, missing)
    rows = dict(zip(reads, await connection.run(*reads.values()), strict=True)) if reads else {}
    take_due(looking, rows.get("due", ()), rows.get("upcoming", ()))
    found_fresh(chosen, rows.get("fresh", ()))
    existing = {subscription_id for (subscription_id,) in rows.get("existing", ())}
    outcomes = {
        subscription_id: PushClaimed((), outcome="locked" if subscription_id in existing else "gone")
        for subscription_id in missing
    }
    return works, outcomes


def _of(request: PushClaimRequest, subscription_ids: list[int]) -> dict[str, Any]:
    return {"shard_id": request.shard_id, "subscription_ids": subscription_ids}


def _share_out(request: PushClaimRequest, works: Iterable[Work]) -> None:
    """Decide what each gets, while all of it together is not too large."""
    bodies: dict[int, int] = {}  # sequence -> size, of all that is to be read
    left = MAX_BYTES

    def with_room_for(portion: Portion) -> Portion:
        nonlocal left
        new = {message.seq: message.size for message in portion.messages if message.seq not in bodies}
        size = sum(new.values())
        if bodies and size > left:
            return Portion(more=True)
        left -= size
        bodies.update(new)
        return portion

    for work in works:
        demand, place = work.demand, work.place
        if work.redeliveries:
            work.portion = with_room_for(place.share(demand, work.redeliveries, request.now))
            work.settle()
            continue
        portion = place.portions.get(demand.appetite)
        if portion is None:
            portion = with_room_for(place.share(demand, (), request.now))
            place.portions[demand.appetite] = portion
        work.portion = portion


async def _write(
    connection: HotConnection,
    request: PushClaimRequest,
    works: Sequence[Work],
    together: Sequence[Work],
    attempt_ids: AttemptIds,
) -> dict[int, PushClaimed]:
    count = sum(len(work.portion.attempts) for work in together)
    ids = iter(attempt_ids.take(count, now=request.now))
    attempts = [
        _Attempt(work, next(ids), number, run) for work in together for number, run in work.portion.attempts
    ]
    writes = [*rewritten_rows(request, together), *_moved_cursors(request, together)]
    if not attempts:
        # What was passed over would only be passed over again: this need not wait for the disk.
        await connection.run(*writes, *NOTHING_CHANGED)
        return {work.demand.subscription_id: _claimed(request, work, ()) for work in together}
    *_, rows, _ = await connection.run(
        *writes, _new_rows(request, attempts), _bodies(request, attempts), (COMMIT, {})
    )
    bodies = {message.seq: message for message in (StoredMessage(*row) for row in rows)}
    deliveries = _deliveries(request, attempts, bodies)
    return {
        work.demand.subscription_id: _claimed(request, work, deliveries.get(work.demand.subscription_id, ()))
        for work in together
    }


def _moved_cursors(request: PushClaimRequest, works: Iterable[Work]) -> Iterator[Bound]:
    """Only of those that have passed something, or have looked at something due."""
    moved = [work for work in works if work.portion.position is not None or work.due]
    if not moved:
        return
    positions = [work.portion.position or work.cursor[:2] for work in moved]
    columns = {
        "next_publish_times": [publish_time for publish_time, _ in positions],
        "next_seqs": [seq for _, seq in positions],
        "due_floors": [work.due_floor(request.now) for work in moved],
    }
    yield _MOVE_CURSORS, {**_of(request, [work.demand.subscription_id for work in moved]), **columns}


def _new_rows(request: PushClaimRequest, attempts: Sequence[_Attempt]) -> Bound:
    at = request.handed_out_at()
    durations = {attempt.work.demand.ack_deadline for attempt in attempts}
    ack_deadlines = {duration: at + duration for duration in durations}
    return _INSERT_ATTEMPTS, {
        **_of(request, [attempt.work.demand.subscription_id for attempt in attempts]),
        "now": at,
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "attempt_numbers": [attempt.number for attempt in attempts],
        "ack_deadlines": [ack_deadlines[attempt.work.demand.ack_deadline] for attempt in attempts],
        **run_columns([attempt.messages for attempt in attempts]),
    }


def _bodies(request: PushClaimRequest, attempts: Iterable[_Attempt]) -> Bound:
    """Each message once, however many subscriptions get it."""
    runs_taken = {id(attempt.messages): attempt.messages for attempt in attempts}
    distinct = {message.seq: message for messages in runs_taken.values() for message in messages}
    runs = list(close_runs([distinct[seq] for seq in sorted(distinct)]))
    return _READ_MESSAGES, {
        "shard_id": request.shard_id,
        "first_publish_times": [run[0].publish_time for run in runs],
        "last_publish_times": [run[-1].publish_time for run in runs],
        "seqs": [to_multirange([message.seq for message in run]) for run in runs],
        "retained_since": runs[0][0].publish_time,
        "filter_path": None,
        "max_bytes": _ANY_SIZE,
    }


def _deliveries(
    request: PushClaimRequest, attempts: Iterable[_Attempt], bodies: Mapping[int, StoredMessage]
) -> dict[int, list[Delivery]]:
    """The deliveries of each subscription; attempts that hold the same run share its messages.

    A message whose partition was dropped since it was found is missing.  Its whole attempt is left to fall due,
    when it is taken out as every redelivery is that the log has no more.
    """
    read: dict[int, list[StoredMessage] | None] = {}
    deliveries: dict[int, list[Delivery]] = {}
    for work, attempt_id, number, run in attempts:
        if id(run) not in read:
            read[id(run)] = [bodies[m.seq] for m in run] if all(m.seq in bodies for m in run) else None
        messages = read[id(run)]
        if messages is not None:
            delivery = Delivery(request.shard_id, attempt_id, number, messages)
            deliveries.setdefault(work.demand.subscription_id, []).append(delivery)
    return deliveries


def _claimed(request: PushClaimRequest, work: Work, deliveries: Sequence[Delivery]) -> PushClaimed:
    more = work.portion.more or work.more_due
    return PushClaimed(deliveries, more=more, next_look_at=work.next_look_at(request.now))


async def _claim_alone(
    connection: HotConnection, request: PushClaimRequest, work: Work, attempt_ids: AttemptIds
) -> PushClaimed:
    """In a claim of its own: some of what is out holds ordering keys, for it was restored from the snapshot of an
    ordered subscription.  Rare, and over once that is delivered.
    """
    demand = work.demand
    alone = ClaimRequest(
        shard_id=request.shard_id,
        subscription_id=demand.subscription_id,
        demands=[demand.limits],
        ack_deadline=demand.ack_deadline,
        retained_since=demand.retained_since,
        now=request.now,
        retry_policy=demand.retry_policy,
        jitter=request.jitter,
        filter_path=demand.filter_path,
        max_attempts=demand.max_attempts,
        clock=request.clock,
    )
    claimed = await claim_messages(connection, alone, attempt_ids)
    if not claimed.found:
        return PushClaimed((), outcome="gone")
    [deliveries] = claimed.deliveries
    more = not claimed.looked_ahead
    return PushClaimed(deliveries, more=more, next_look_at=claimed.next_delivery_at)
