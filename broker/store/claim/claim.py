"""Claims: hands out messages under the cursors' locks (A4, A6, A7, A8, C1).

One claim serves any number of subscriptions of a shard; a pull is the case of one.  It is one transaction:

    lock ──► find what is due, and fresh ──► find due messages ──► release keys ──► allocate ──► write, read bodies

A step without work costs no round trip, and a claim for one subscription locks and finds in one.  The steps
(due.py, fresh.py, allocate.py, write.py) return queries, and a function for the rows of each; `_Claim._run` sends
them. docs/claim.md explains it all, and has the rules that lose or duplicate messages when broken.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from broker.domain.delivery import Delivery
from broker.domain.message_range import count_of
from broker.domain.ordered_run import OrderedRun
from broker.store.claim.allocate import allocate_messages
from broker.store.claim.due import Glimpse, find_due, find_due_beyond, lock_due
from broker.store.claim.fresh import Bodies, Place, find_fresh, place_of, shared_places
from broker.store.claim.passed import (
    expired_of,
    give_up_expired,
    journal_of_expired,
    record_old_messages,
    record_old_redeliveries,
)
from broker.store.claim.request import Claimed, ClaimRequest, ClaimTarget, Gone, Locked, More, Query, Quiet
from broker.store.claim.state import UNKNOWN, Cursor, TargetState
from broker.store.claim.write import (
    Attempt,
    attempts_of,
    deliveries_of,
    insert_attempts,
    journal_of_attempts,
    move_cursors,
    read_next,
    release_keys,
)
from broker.store.driver import statements
from broker.store.driver.database import Database
from broker.store.driver.hot_connection import NOTHING_CHANGED, HotConnection, NeedsCoordinator
from broker.store.driver.statements import BEGIN, COMMIT
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.due_attempt import DueAttempt
from broker.store.log.journal import journal_statement

_LOCK_CURSORS = statements.hot("lock_cursors")
_LOCK_FREE_CURSORS = statements.hot("lock_free_cursors")
_READ_CURSORS = statements.hot("read_cursors")

TURN_COST = 800  # of a message that is handled by itself, each time (runtime/loop_turns.py): some 1 µs
MANY = 50  # fewer messages are handled without a turn


async def claim_at_any_node(
    database: Database, request: ClaimRequest, attempt_ids: AttemptIds
) -> Mapping[int, Claimed]:
    """Run `claim_messages` on a connection to a node, or to the coordinator if necessary.  Raises a BrokerError."""
    try:
        async with database.at_any_node(request.shard_id) as connection:
            return await claim_messages(connection, request, attempt_ids)
    except NeedsCoordinator:  # rare: for expired messages, and subscriptions with a journal
        async with database.hot() as connection:
            return await claim_messages(connection, request, attempt_ids)


async def claim_messages(
    connection: HotConnection, request: ClaimRequest, attempt_ids: AttemptIds
) -> Mapping[int, Claimed]:
    """Hand out messages, durably, each under a new attempt id; the result for each target, by subscription_id.

    Redeliveries and fresh messages share what a target gets (domain/allocation.py).  Messages that the claim has no
    room for, to read or to scan, are left to the next, and the result is More.
    Raises NeedsCoordinator if it has to write the journal, and `connection` does not number its rows.
    """
    if not connection.gives_numbers and any(target.journal is not None for target in request.targets):
        raise NeedsCoordinator
    claim = _Claim(connection, request, attempt_ids)
    try:
        await claim.lock_and_find()
        await claim.find_further()
        await claim.allocate()
        return await claim.write()
    except NeedsCoordinator:  # the claim that is made there finds nothing locked
        await connection.undo()
        raise
    except BaseException:
        await connection.close()  # its transaction is open
        raise


class _Claim:
    """The transaction of one claim: the steps that need a round trip, and what they have found."""

    def __init__(self, connection: HotConnection, request: ClaimRequest, attempt_ids: AttemptIds) -> None:
        self._connection, self._request, self._attempt_ids = connection, request, attempt_ids
        self._bodies = Bodies()
        self._missing: list[tuple[ClaimTarget, Gone | Locked]] = []  # targets whose cursors are not locked here
        self._redeliveries = 0  # messages without keys that were looked up
        self.states: Sequence[TargetState] = ()  # of the targets whose cursors are

    async def _run(self, queries: Sequence[Query], *, messages: int = 0) -> None:
        """Send queries in one round trip, and have their rows taken in the same order.

        Nothing else talks to the connection.  A claim that handles many messages one by one waits for a turn first.
        """
        if not queries:
            return
        rows = await self._connection.run(*[query.bound for query in queries])
        for query in queries:
            messages += query.messages
        if messages > MANY:
            await self._request.turn(TURN_COST * messages)
        for query, taken in zip(queries, rows, strict=True):
            if query.take is not None:
                query.take(taken)

    # --- lock and find -------------------------------------------------------------------------------------------

    async def lock_and_find(self) -> None:
        """Lock the cursors, and find what is due, and what is fresh where no ordering keys are held."""
        request = self._request
        if request.waits and request.targets[0].newest is None:
            await self._lock_and_find_one(request.targets[0])
            return
        locked: list[Any] = []
        lock = _LOCK_CURSORS if request.waits else _LOCK_FREE_CURSORS
        where = request.where([target.subscription_id for target in request.targets])
        await self._run([Query((BEGIN, {})), Query((lock, where), locked.extend)])
        by_id = {target.subscription_id: target for target in request.targets}
        cursors = {
            row.subscription_id: _cursor(row) for row in locked if _is_usable(row, by_id[row.subscription_id])
        }
        ours = [
            (each, cursors[each.subscription_id]) for each in request.targets if each.subscription_id in cursors
        ]
        places = shared_places((target, cursor.position) for target, cursor in ours)
        self.states = [
            TargetState(target, place, cursor) for (target, cursor), place in zip(ours, places, strict=True)
        ]
        missing = [each for each in request.targets if each.subscription_id not in cursors]
        existing: set[int] = set()
        # In statements of their own, after the lock: they see everything that was committed before it was granted.
        queries = [
            *lock_due(request, [state for state in self.states if state.target.looks_for_due]),
            *find_fresh(request, _places(self.states, ordered=False), self._bodies),
        ]
        if missing:
            others = request.where([target.subscription_id for target in missing])
            take = lambda rows: existing.update(row.subscription_id for row in rows)  # noqa: E731
            queries.append(Query((_READ_CURSORS, others), take))
        await self._run(queries)
        held = existing.difference(row.subscription_id for row in locked)
        self._missing = [(each, Locked() if each.subscription_id in held else Gone()) for each in missing]

    async def _lock_and_find_one(self, target: ClaimTarget) -> None:
        """Do the same for one target in one round trip: the server runs statements one after the other, too.

        Its filter was never changed, so it decides wherever the cursor is.
        """
        request = self._request
        state = TargetState(target, place_of(target, UNKNOWN.next_publish_time))
        locked: list[Any] = []
        queries = [
            Query((BEGIN, {})),
            Query((_LOCK_CURSORS, request.where([target.subscription_id])), locked.extend),
        ]
        glimpse = None
        if target.looks_for_due and self._connection.is_distributed:
            glimpse = Glimpse(request, state)
            queries.append(glimpse.query())
        elif target.looks_for_due:
            queries += lock_due(request, [state])
        if not target.ordered:
            queries += find_fresh(request, [state.place], self._bodies)
        await self._run(queries)
        if not locked or not _is_usable(locked[0], target):
            self._missing = [(target, Gone())]
            return
        self.states = [state]
        state.cursor = _cursor(locked[0])
        if glimpse is not None and not glimpse.rules_out:
            await self._run(lock_due(request, [state]))

    async def find_further(self) -> None:
        """Find the messages that are due; then what is fresh of ordering keys that are free, or are released here;
        then more, where all messages that were found have expired.
        """
        request, states = self._request, self.states
        if all(state.is_plain and not state.place.is_past for state in states):
            return
        due = find_due(request, states)
        self._redeliveries = sum(query.messages for query in due)
        await self._run(due)
        released = release_keys(request, states)
        await self._run([*released, *find_fresh(request, _places(states, ordered=True), self._bodies)])
        past = [state.place for state in states if state.place.is_past]
        if past or any(row.past for state in states for row in _rows(state)):
            for place in past:
                place.passes = True
            beyond = find_due_beyond(request, states)
            await self._run([*beyond, *find_fresh(request, past, self._bodies)])

    async def allocate(self) -> None:
        """Divide what was found between the targets, by number and by bytes."""
        if self._redeliveries > MANY:
            await self._request.turn(TURN_COST * self._redeliveries)
        allocate_messages(self._request, self.states)

    # --- write and commit ----------------------------------------------------------------------------------------

    async def write(self) -> Mapping[int, Claimed]:
        """Write the allocations, read the bodies and commit: durably if any message is handed out."""
        results = {
            target.subscription_id: Claimed([()] * len(target.requests), rest) for target, rest in self._missing
        }
        request, states = self._request, self.states
        if not states:
            await self._connection.run(*NOTHING_CHANGED)
            return results
        attempts = attempts_of(request, states, self._attempt_ids)
        at = request.handed_out_at()
        asking = [state for state in states if _asks_for_next(state)]
        upcoming: dict[int, datetime] = {}
        queries = [
            *move_cursors(request, states, on_nodes=self._connection.is_distributed),
            # Before the rows of what is handed out now, which are not meant, and behind retry delays.
            *read_next(request, asking, upcoming, on_nodes=self._connection.is_distributed),
            *insert_attempts(request, states, attempts, at),
            *self._record(attempts, at),
            *self._bodies.missing([attempt.plan.ranges for attempt in attempts], request.shard_id),
        ]
        # Without attempts the commit need not wait for the disk: messages that were passed would be passed again.
        queries += _COMMIT if attempts else _COMMIT_NOTHING
        await self._run(queries, messages=self._redeliveries)
        deliveries = deliveries_of(request, attempts, self._bodies)
        for state in states:
            results[state.subscription_id] = _result(state, deliveries, upcoming.get(state.subscription_id))
        return results

    def _record(self, attempts: Sequence[Attempt], at: datetime) -> list[Query]:
        """Record what is delivered, and what is not.  Raises NeedsCoordinator."""
        request, states = self._request, self.states
        passed = [state for state in states if _passes(state)]
        given_up = give_up_expired(request, passed, self._attempt_ids, at) if passed else []
        rows = journal_of_attempts(attempts)
        rows += (row for state in passed for row in journal_of_expired(state))
        journal = [journal_statement(request.shard_id, rows, at)] if rows else []
        if passed:
            journal += [*record_old_redeliveries(request, passed, at), *record_old_messages(request, passed, at)]
        if journal and not self._connection.gives_numbers:
            raise NeedsCoordinator
        return [Query(bound) for bound in (*given_up, *journal)]


_COMMIT = [Query((COMMIT, {}))]
_COMMIT_NOTHING = [Query(bound) for bound in NOTHING_CHANGED]


def _places(states: Iterable[TargetState], *, ordered: bool) -> list[Place]:
    return [state.place for state in states if state.target.ordered is ordered]


def _is_usable(row: Any, target: ClaimTarget) -> bool:
    """Whether this claim may move a cursor that it has locked.

    The filter may have been changed since the subscription was read (`filter_changed_at`, None: never).  What was
    found by the earlier filter is discarded then: it may have been applied to messages that were published after
    the change.
    """
    changed_at = row.filter_changed_at
    return not row.paused and (changed_at is None or changed_at == target.filter_changed_at)


def _cursor(row: Any) -> Cursor:
    return Cursor(row.next_publish_time, row.next_seq, row.due_floor, row.due_first)


def _passes(state: TargetState) -> bool:
    """Whether messages may have been found that are not delivered since they are too old, or not in the log."""
    return (
        bool(state.runs or state.allocation.past)
        or state.cursor.next_publish_time < state.target.retained_since
        or any(row.past or row.gone for row in state.due)
    )


def _asks_for_next(state: TargetState) -> bool:
    """Whether to read when the next redelivery is due."""
    if not state.target.looks_for_due or _more(state):
        return False
    allocation = state.allocation
    got = zip(allocation.allocations, allocation.runs, strict=True)
    return state.target.wants_next or any(not (each.fresh or each.redelivered or runs) for each, runs in got)


def _more(state: TargetState) -> bool:
    """Whether more messages may be claimed at once than this claim hands out."""
    more_due = state.changed_meanwhile or state.beyond is not None or any(row.is_left for row in state.due)
    return more_due or state.allocation.more or any(run.is_left for run in state.runs)


def _rows(state: TargetState) -> list[DueAttempt | OrderedRun]:
    """The rows that were due."""
    return [*state.due, *state.runs]


def _only_just_retried(state: TargetState) -> bool:
    """Whether all messages that are left are left because they were just retried.

    A claim reads those last, so it has read all others.
    """
    if not state.target.leaves_just_retried or state.allocation.more or state.changed_meanwhile:
        return False
    left = [row.is_just_retried for row in _rows(state) if row.is_left]
    return bool(left) and all(left)


def _result(
    state: TargetState, deliveries: Mapping[tuple[int, int], Sequence[Delivery]], upcoming: datetime | None
) -> Claimed:
    if _more(state):
        rest: More | Quiet = More()
    else:
        times = [time for time in (upcoming, state.allocation.until) if time is not None]
        rest = Quiet(min(times, default=None))
    return Claimed(
        [deliveries.get((state.subscription_id, number), ()) for number in range(len(state.target.requests))],
        rest,
        expired=sum(row.expired for row in _rows(state)) if state.due or state.runs else 0,
        past=sum(count_of(ranges) for _, ranges in expired_of(state)) if _passes(state) else 0,
        only_just_retried=_only_just_retried(state),
    )
