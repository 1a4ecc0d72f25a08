"""Claims messages for delivery, under the locks of cursors (A4, A6, A7, A8, C1).

One claim serves any number of subscriptions of a shard; a pull is the case of one.  It is one transaction:

    lock ──► find what is due, and fresh ──► find due messages ──► release keys ──► allocate ──► write, read bodies

A step without work costs no round trip, and a claim for one subscription locks and finds messages in one.  The
steps (due.py, fresh.py, allocate.py, write.py) return queries, and a function for the rows of each; `_Claim._run`
sends them.  docs/claim.md explains claims in detail, with the rules whose violation loses or duplicates messages.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker.core.claiming.transaction.allocate import allocate_messages
from broker.core.claiming.transaction.due import find_due, find_due_beyond, lock_due
from broker.core.claiming.transaction.fresh import Bodies, Place, find_fresh, place_of, shared_places
from broker.core.claiming.transaction.request import Claimed, ClaimRequest, ClaimTarget, Gone, Locked, Query
from broker.core.claiming.transaction.state import Cursor, TargetState
from broker.core.claiming.transaction.write import release_keys, write_allocations
from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.database import Database
from broker.db.driver.hot_connection import NOTHING_CHANGED, HotConnection, NeedsCoordinator
from broker.db.driver.statements import BEGIN, Statement

_LOCK_CURSORS = statements.hot("lock_cursors")
_LOCK_FREE_CURSORS = statements.hot("lock_free_cursors")
_READ_CURSORS = statements.hot("read_cursors")

TURN_COST = 800  # of a message that is handled by itself, each time (fairness/loop_turns.py): some 1 µs
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

    Redeliveries and fresh messages share what a target gets (core/claiming/transaction/allocation.py).  Messages
    that the claim has no room for, to read or to scan, are left to the next, and the result is More.
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
    except NeedsCoordinator:  # the claim on the coordinator finds no locks
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
        self._missing: list[tuple[ClaimTarget, Gone | Locked]] = []  # targets whose cursors could not be locked
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
        waits = len(request.targets) == 1 and not request.skip_locked
        if waits and request.targets[0].newest is None:
            await self._lock_and_find_one(request.targets[0])
        else:
            await self._lock_and_find_several(_LOCK_CURSORS if waits else _LOCK_FREE_CURSORS)

    async def _lock_and_find_several(self, lock: Statement) -> None:
        request = self._request
        locked: list[Any] = []
        where = request.where([target.subscription_id for target in request.targets])
        await self._run([Query((BEGIN, {})), Query((lock, where), locked.extend)])
        targets = {target.subscription_id: target for target in request.targets}
        cursors = {
            row.subscription_id: _cursor(row) for row in locked if _is_usable(row, targets[row.subscription_id])
        }
        ours = [(target, cursors[key]) for key, target in targets.items() if key in cursors]
        places = shared_places((target, cursor.position) for target, cursor in ours)
        self.states = [
            TargetState(target, place, cursor) for (target, cursor), place in zip(ours, places, strict=True)
        ]
        existing: set[int] = set()
        # They are statements of their own after the lock, so they see everything that was committed before it was
        # granted.
        queries = [
            *lock_due(request, [state for state in self.states if state.target.includes_due]),
            *find_fresh(request, _places(self.states, ordered=False), self._bodies),
        ]
        missing = [target for key, target in targets.items() if key not in cursors]
        if missing:
            others = request.where([target.subscription_id for target in missing])
            take = lambda rows: existing.update(row.subscription_id for row in rows)  # noqa: E731
            queries.append(Query((_READ_CURSORS, others), take))
        await self._run(queries)
        held = existing.difference(row.subscription_id for row in locked)
        self._missing = [(each, Locked() if each.subscription_id in held else Gone()) for each in missing]

    async def _lock_and_find_one(self, target: ClaimTarget) -> None:
        """Do the same for one target in one round trip: the server runs statements one after the other.

        Its filter was never changed, so it decides wherever the cursor is.
        """
        request = self._request
        state = TargetState(target, place_of(target, target.filter_path, target.body_path))
        locked: list[Any] = []
        queries = [
            Query((BEGIN, {})),
            Query((_LOCK_CURSORS, request.where([target.subscription_id])), locked.extend),
        ]
        if target.includes_due:
            queries += lock_due(request, [state])
        if not target.ordered:
            queries += find_fresh(request, [state.place], self._bodies)
        await self._run(queries)
        if not locked or not _is_usable(locked[0], target):
            self._missing = [(target, Gone())]
            return
        self.states = [state]
        state.cursor = _cursor(locked[0])

    async def find_further(self) -> None:
        """Find the messages that are due; then what is fresh of ordering keys that are free, or are released here;
        then more, where all messages that were found have expired.
        """
        request, states = self._request, self.states
        if not all(state.is_plain for state in states):
            due = find_due(request, states)
            self._redeliveries = sum(query.messages for query in due)
            await self._run(due)
            released = release_keys(request, states)
            await self._run([*released, *find_fresh(request, _places(states, ordered=True), self._bodies)])
        past = [state.place for state in states if state.place.fresh is not None and state.place.fresh.only_past]
        if past or any(map(_has_expired, states)):
            for place in past:
                place.passes = True
            beyond = find_due_beyond(request, states)
            await self._run([*beyond, *find_fresh(request, past, self._bodies)])

    async def allocate(self) -> None:
        """Divide what was found between the targets, by number and by bytes."""
        if self._redeliveries > MANY:
            await self._request.turn(TURN_COST * self._redeliveries)
        allocate_messages(self._request, self.states)

    async def write(self) -> Mapping[int, Claimed]:
        """Write the allocations, read the bodies and commit.  Raises NeedsCoordinator."""
        results = {
            target.subscription_id: Claimed([()] * len(target.requests), rest) for target, rest in self._missing
        }
        if not self.states:
            await self._connection.run(*NOTHING_CHANGED)
            return results
        queries, results_of_states = write_allocations(
            self._request,
            self.states,
            self._attempt_ids,
            self._bodies,
            gives_numbers=self._connection.gives_numbers,
        )
        await self._run(queries, messages=self._redeliveries)
        return {**results, **results_of_states()}


def _places(states: Iterable[TargetState], *, ordered: bool) -> list[Place]:
    return [state.place for state in states if state.target.ordered is ordered]


def _has_expired(state: TargetState) -> bool:
    """Whether messages of rows that were due have expired."""
    return any(row.past for row in state.due) or any(run.past for run in state.runs)


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
