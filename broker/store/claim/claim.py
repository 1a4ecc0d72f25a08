"""Claims: handing out messages under the cursors' locks (A4, A6, A7, A8, C1).

One claim serves any number of subscriptions of a shard; a pull is the case of one.  It is one transaction:

    lock ──► look ──► look up what is due ──► let go of keys ──► share ──► write, read the bodies, commit

Each arrow that has nothing to do costs no round trip, and a claim for one subscription locks and looks in one.
docs/claim.md has the whole story, and the rules that lose or double messages when broken.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.store.claim.bodies import Bodies
from broker.store.claim.due import Glimpse, lock_due, look_up_due
from broker.store.claim.fresh import look_at, place_of, shared_places
from broker.store.claim.ordered import clear_away
from broker.store.claim.past_time import look_beyond
from broker.store.claim.request import Claimant, Claimed, ClaimRequest, Gone, Locked
from broker.store.claim.round_trip import COST, MANY, RoundTrip
from broker.store.claim.share import share
from broker.store.claim.work import UNKNOWN, Cursor, Work
from broker.store.claim.write import write
from broker.store.driver import statements
from broker.store.driver.database import Database
from broker.store.driver.hot_connection import NOTHING_CHANGED, HotConnection, NeedsCoordinator
from broker.store.driver.statements import BEGIN
from broker.store.log.attempt_ids import AttemptIds

_LOCK_CURSORS = statements.hot("lock_cursors")
_LOCK_FREE_CURSORS = statements.hot("lock_free_cursors")
_READ_CURSORS = statements.hot("read_cursors")


async def claim_messages(
    connection: HotConnection, request: ClaimRequest, attempt_ids: AttemptIds
) -> Mapping[int, Claimed]:
    """Hand out messages, durably, each under a new attempt id; what became of each claimant, by subscription_id.

    Redeliveries and fresh messages share what a claimant gets (domain/due_share.py).
    What a claim has no room for (bodies, messages to scan) it leaves to the next, and says More.
    Raises NeedsCoordinator if it has to tell the journal something, and `connection` gives no numbers to its rows.
    """
    if not connection.gives_numbers and any(claimant.journal is not None for claimant in request.claimants):
        raise NeedsCoordinator
    try:
        bodies = Bodies()
        works, missing = await _lock_and_look(connection, request, bodies)
        outcomes: dict[int, Claimed] = {
            claimant.subscription_id: Claimed([()] * len(claimant.demands), rest) for claimant, rest in missing
        }
        if not works:
            await connection.run(*NOTHING_CHANGED)
            return outcomes
        again = 0
        if any(work.looks_further for work in works):
            again = await _look_further(connection, request, works, bodies)
        if again > MANY:
            await request.turn(COST * again)
        share(request, works)
        return {**outcomes, **await write(connection, request, works, attempt_ids, bodies, again)}
    except NeedsCoordinator:  # who claims there finds nothing locked
        await connection.undo()
        raise
    except BaseException:
        await connection.close()  # its transaction is open
        raise


async def claim_at_any_node(
    database: Database, request: ClaimRequest, attempt_ids: AttemptIds
) -> Mapping[int, Claimed]:
    """claim_messages on a connection of `database`: to the coordinator if that has to be.  Raises a BrokerError."""
    try:
        async with database.at_any_node(request.shard_id) as connection:
            return await claim_messages(connection, request, attempt_ids)
    except NeedsCoordinator:  # seldom: of what is past its time, or of subscriptions with a journal
        async with database.hot() as connection:
            return await claim_messages(connection, request, attempt_ids)


_Missing = list[tuple[Claimant, Gone | Locked]]


async def _lock_and_look(
    connection: HotConnection, request: ClaimRequest, bodies: Bodies
) -> tuple[list[Work], _Missing]:
    """The claimants whose cursors this claim has locked with what there is for them, and the others."""
    if request.waits and request.claimants[0].newest is None:
        return await _of_one(connection, request, bodies)
    where = request.where([claimant.subscription_id for claimant in request.claimants])
    lock = _LOCK_CURSORS if request.waits else _LOCK_FREE_CURSORS
    _, locked = await connection.run((BEGIN, {}), (lock, where))
    by_id = {claimant.subscription_id: claimant for claimant in request.claimants}
    usable = [row for row in locked if _is_usable(row, by_id[row.subscription_id])]
    cursors = {row.subscription_id: _cursor(row) for row in usable}
    ours = [(each, cursors[each.subscription_id]) for each in request.claimants if each.subscription_id in cursors]
    places = shared_places((claimant, cursor.position) for claimant, cursor in ours)
    works = [Work(claimant, place, cursor) for (claimant, cursor), place in zip(ours, places, strict=True)]
    unusable = {row.subscription_id for row in locked} - cursors.keys()
    missing = [each for each in request.claimants if each.subscription_id not in cursors]
    existing: set[int] = set()
    # In statements of their own, after the lock: what they see is as new as what it shows.
    trip = RoundTrip()
    _look_first(trip, request, works, bodies)
    if missing:
        others = request.where([claimant.subscription_id for claimant in missing])
        trip.add((_READ_CURSORS, others), take=lambda rows: existing.update(row.subscription_id for row in rows))
    if trip:
        await trip.run(connection, request.turn)
    held = existing - unusable
    return works, [(each, Locked() if each.subscription_id in held else Gone()) for each in missing]


async def _of_one(connection: HotConnection, request: ClaimRequest, bodies: Bodies) -> tuple[list[Work], _Missing]:
    """As the others, in one round trip: statements follow each other on the server too.

    Its filter was never changed, so it decides wherever the cursor is.
    """
    [claimant] = request.claimants
    work = Work(claimant, place_of(claimant, UNKNOWN.next_publish_time))
    locked: list[Any] = []
    trip = RoundTrip()
    trip.add((BEGIN, {}))
    trip.add((_LOCK_CURSORS, request.where([claimant.subscription_id])), take=locked.extend)
    glimpse = Glimpse(request, work) if connection.is_distributed and claimant.looks_for_due else None
    _look_first(trip, request, [work], bodies, glimpse)
    await trip.run(connection, request.turn)
    if not locked or not _is_usable(locked[0], claimant):
        return [], [(claimant, Gone())]
    work.cursor = _cursor(locked[0])
    if glimpse is not None and not glimpse.rules_out:
        trip = RoundTrip()
        lock_due(trip, request, [work])
        await trip.run(connection, request.turn)
    return [work], []


def _is_usable(row: Any, claimant: Claimant) -> bool:
    """Whether this claim may move a cursor that it has locked.

    The filter may have been changed since the subscription was read.  What was read or found by the earlier filter
    is discarded then: it may have been applied to messages that were published after the change.
    """
    return not row.paused and claimant.has_filter_of(row.filter_changed_at)


def _cursor(row: Any) -> Cursor:
    return Cursor(row.next_publish_time, row.next_seq, row.due_floor, row.due_first)


def _look_first(
    trip: RoundTrip, request: ClaimRequest, works: Sequence[Work], bodies: Bodies, glimpse: Glimpse | None = None
) -> None:
    """For what is due, and what is fresh where no keys have to be heeded."""
    if glimpse is None:
        lock_due(trip, request, [work for work in works if work.claimant.looks_for_due])
    else:
        glimpse.add(trip)
    look_at(trip, request, [work.place for work in works if not work.claimant.ordered], bodies)


async def _look_further(
    connection: HotConnection, request: ClaimRequest, works: Sequence[Work], bodies: Bodies
) -> int:
    """What the log has of what is due; then what is fresh of keys that are free, and those that come free here.

    Returns how many messages without keys were asked for that are due.
    """
    trip = RoundTrip()
    look_up_due(trip, request, works)
    again = trip.messages
    if trip:
        await trip.run(connection, request.turn)
    trip = RoundTrip()
    trip.add(*clear_away(request, works))
    look_at(trip, request, [work.place for work in works if work.claimant.ordered], bodies)
    if trip:
        await trip.run(connection, request.turn)
    trip = RoundTrip()
    look_beyond(trip, request, works, bodies)
    if trip:
        await trip.run(connection, request.turn)
    return again
