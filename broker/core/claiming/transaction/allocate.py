"""Allocates the messages that were found to the targets of a claim and their requests
(core/claiming/transaction/allocation.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from broker.core.claiming.transaction.allocation import (
    Allocation,
    DueAllocation,
    Redelivery,
    Source,
    allocate,
    allocate_due,
    allocate_in_order,
    allocate_runs,
    as_attempts,
    even_parts,
    remaining,
)
from broker.core.claiming.transaction.request import MAX_BYTES, ClaimRequest
from broker.core.claiming.transaction.state import PlannedAttempt, TargetAllocation, TargetState
from broker.model.delivery import DeliveryRequest
from broker.model.message_range import MessageRange, count_of, size_of
from broker.model.push_config import Digest


def allocate_messages(request: ClaimRequest, states: Sequence[TargetState]) -> None:
    """Give each target its allocation, while the bodies of all together are not too large.

    Targets that are alike have one allocation, which is divided into attempts once.
    """
    batches: set[int] = set()  # to read
    left = MAX_BYTES

    def with_capacity_for(allocation: TargetAllocation) -> TargetAllocation:
        nonlocal left
        if len(states) == 1:  # the first target gets all that it takes
            return allocation
        new = [each for each in _ranges(allocation) if each.batch not in batches]
        size = size_of(new)
        if batches and size > left:
            return TargetAllocation(more=True)
        left -= size
        batches.update(each.batch for each in new)
        return allocation

    for state in states:
        alike = state.place.allocations if state.is_plain else {}
        appetite = state.target.appetite
        if appetite not in alike:
            state.allocation = alike[appetite] = with_capacity_for(_allocation(request, state))
            _take_out_of_rows(state)
            state.allocation.attempts = list(_attempts(state))
        state.allocation = alike[appetite]


def _ranges(allocation: TargetAllocation) -> Iterator[MessageRange]:
    yield from (each for of_request in allocation.allocations for each in of_request.ranges)
    yield from (each for runs in allocation.runs for _, taken in runs for each in taken)


def _allocation(request: ClaimRequest, state: TargetState) -> TargetAllocation:
    """Due and fresh messages, by halves where both compete."""
    target = state.target
    fresh: Sequence[MessageRange] = () if state.place.fresh is None else state.place.fresh.ranges
    if not _fills(target.digest, fresh, request.now):
        fresh = ()
    runs_due, redeliveries = state.ready, state.redeliveries
    if target.leaves_just_retried:
        runs_due = [run for run in runs_due if not run.is_just_retried]
        redeliveries = [each for each in redeliveries if not each.is_just_retried]
    due = allocate_due(
        runs_due,
        redeliveries,
        fresh,
        max_messages=target.max_messages,
        max_bytes=target.max_bytes,
        due_first=state.cursor.due_first,
    )
    state.passes_turn = due.passes_turn
    requests = target.requests if len(target.requests) == 1 else _even_parts(state, due, fresh)
    runs = allocate_runs(due.runs, requests, target.preferred)
    if due.runs:
        requests = remaining(requests, [[message for _, taken in given for message in taken] for given in runs])
    if target.ordered:
        allocations, rest = _allocate_in_order(state, requests, due.redeliveries, fresh)
    else:
        source = Source(fresh)
        allocations = allocate(requests, due.redeliveries, source)
        rest = source.rest()
    return _with_rest(request, state, TargetAllocation(runs, allocations), rest if fresh else None)


def _fills(digest: Digest | None, messages: Sequence[MessageRange], now: datetime) -> bool:
    """Whether these messages fill a digest, or the oldest has waited for long enough."""
    if digest is None or not messages:
        return True
    return (
        count_of(messages) >= digest.max_messages
        or messages[0].publish_time + digest.max_delay <= now
        or size_of(messages) >= digest.max_bytes
    )


def _even_parts(state: TargetState, due: DueAllocation, fresh: Sequence[MessageRange]) -> Sequence[DeliveryRequest]:
    """The requests, with the even ones limited to their part of the available messages."""
    available = due.count + count_of(fresh)
    among = available
    if state.target.ordered:  # a key goes to one request
        keys = {message.ordering_key or message.first_seq for message in fresh}
        among = len(due.redeliveries) + len(due.runs) + len(keys)
    return even_parts(state.target.requests, available, among=among)


def _allocate_in_order(
    state: TargetState,
    requests: Sequence[DeliveryRequest],
    redeliveries: Sequence[Redelivery],
    fresh: Sequence[MessageRange],
) -> tuple[list[Allocation], list[MessageRange]]:
    allocations = allocate(requests, redeliveries, Source(()))
    left = remaining(requests, [each.ranges for each in allocations])
    given, considered = allocate_in_order(left, fresh, state.target.max_run, state.target.preferred)
    for each, messages in zip(allocations, given, strict=True):
        each.fresh = messages
    return allocations, list(islice(fresh, considered, None))


def _with_rest(
    request: ClaimRequest, state: TargetState, allocation: TargetAllocation, rest: Sequence[MessageRange] | None
) -> TargetAllocation:
    """The allocation with what is left of the fresh messages (`rest` None: all), where the cursor moves, and when
    more can be claimed.
    """
    fresh, digest = state.place.fresh, state.target.digest
    if fresh is None:  # the claim had no capacity to look up the place
        allocation.more = True
        return allocation
    left = fresh.ranges if rest is None else rest
    # To just past the last message scanned, or to the first that is left: nothing before that matches.
    position = (left[0].publish_time, left[0].first_seq) if left else fresh.end
    if position is not None and position[1] > state.cursor.next_seq:
        allocation.position = position
        if fresh.past:
            allocation.past = _passed(allocation, fresh.past, position[1])
    if not left:
        allocation.more = not fresh.all_seen
    elif _fills(digest, left, request.now):
        allocation.more = True
    elif digest is not None:
        allocation.until = left[0].publish_time + digest.max_delay
    return allocation


def _passed(allocation: TargetAllocation, past: Sequence[MessageRange], end: int) -> list[MessageRange]:
    """The expired fresh messages that a cursor passes when it moves to `end`.

    Those behind a message of their key that is delivered wait for it, as others of the key do.
    """
    delivered = (message for each in allocation.allocations for message in each.fresh)
    last = {message.ordering_key: message.first_seq for message in delivered if message.ordering_key is not None}
    return [each for each in past if each.first_seq < min(end, last.get(each.ordering_key or "", end))]


def _take_out_of_rows(state: TargetState) -> None:
    """Take redeliveries out of their rows, and record which runs are delivered."""
    for runs in state.allocation.runs:
        for run, messages in runs:
            run.take(messages)
    again = {
        message.first_seq
        for each in state.allocation.allocations
        for messages in each.redelivered.values()
        for message in messages
    }
    for row in state.due:
        row.drop([seq for seq in row.asked if seq in row.open and seq in again])


def _attempts(state: TargetState) -> Iterator[PlannedAttempt]:
    """Yields the attempts of each request.

    They are in this order: its due runs, other redeliveries and fresh messages, fresh messages of keys.
    """
    allocation, ordered = state.allocation, state.target.ordered
    for number, (runs, messages) in enumerate(zip(allocation.runs, allocation.allocations, strict=True)):
        for run, taken in runs:
            returned = len(run.behind())
            yield PlannedAttempt(number, run.next_number, taken, run=run, ordered=True, returned=returned)
        fresh = [each for each in messages.fresh if each.ordering_key is None] if ordered else messages.fresh
        for attempt_number, ranges in as_attempts(messages.redelivered, fresh):
            if state.redriven:
                yield from _apart(state, PlannedAttempt(number, attempt_number, ranges))
            else:
                yield PlannedAttempt(number, attempt_number, ranges)
        if ordered:
            for of_key in _by_key(messages.fresh):
                yield PlannedAttempt(number, 1, of_key, ordered=True)


def _apart(state: TargetState, attempt: PlannedAttempt) -> Iterator[PlannedAttempt]:
    """Messages that came back from a dead-letter topic have a row of their own, which is marked."""
    for redriven in (False, True):
        ranges = [each for each in attempt.ranges if (each.first_seq in state.redriven) is redriven]
        if ranges:
            yield PlannedAttempt(attempt.request, attempt.number, ranges, redriven=redriven)


def _by_key(fresh: Iterable[MessageRange]) -> Iterable[Sequence[MessageRange]]:
    runs: dict[str, list[MessageRange]] = {}
    for message in fresh:
        if message.ordering_key is not None:
            runs.setdefault(message.ordering_key, []).append(message)
    return runs.values()
