"""Writes the messages that a claim has allocated, and returns its results.

`write_allocations` returns the statements of the last round trip, and a function of their rows: the result for each
target.  Rows of ordering keys are inserted and deleted only here, under the lock of the cursor; otherwise a claim
could skip messages that no other claim finds (tests/interleavings/test_ordering_rules.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from broker.core.claiming.transaction.fresh import Bodies
from broker.core.claiming.transaction.ordered_run import OrderedRun, Phase
from broker.core.claiming.transaction.passed import (
    expired_of,
    give_up_expired,
    journal_of_expired,
    record_old_messages,
    record_old_redeliveries,
)
from broker.core.claiming.transaction.request import Claimed, ClaimRequest, ClaimTarget, More, Query, Quiet
from broker.core.claiming.transaction.state import PlannedAttempt, TargetState
from broker.core.process.attempt_ids import AttemptIds
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.hot_connection import NOTHING_CHANGED, Bound, NeedsCoordinator
from broker.db.driver.statements import COMMIT
from broker.model.delivery import Delivery
from broker.model.due_attempt import DueAttempt, due_floor_after, replacements
from broker.model.journal import Event, Row, rows_of
from broker.model.message_range import count_of, multirange
from broker.model.sequences import to_multirange

_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_MOVE_CURSORS = statements.hot("move_cursors")
_READ_NEXT_DELIVERY_ATS = statements.hot("read_next_delivery_ats")
_INSERT_DELIVERY_ATTEMPT = statements.hot("insert_delivery_attempt")
_INSERT_DELIVERY_ATTEMPTS = statements.hot("insert_delivery_attempts")
_MARK_REDRIVEN = statements.hot("mark_redriven")
_INSERT_ORDERED_RUNS = statements.hot("insert_ordered_runs")
_REPLACE_ORDERED_RUNS = statements.hot("replace_ordered_runs")
_DELETE_ORDERED_RUNS = statements.hot("delete_ordered_runs")
_KEEP_ACKS = statements.hot("keep_acks")
_COMMIT = [Query((COMMIT, {}))]
_COMMIT_NOTHING = [Query(bound) for bound in NOTHING_CHANGED]


def write_allocations(
    request: ClaimRequest,
    states: Sequence[TargetState],
    attempt_ids: AttemptIds,
    bodies: Bodies,
    *,
    gives_numbers: bool,
) -> tuple[list[Query], Callable[[], Mapping[int, Claimed]]]:
    """Write the allocations, read the bodies and commit: durably if any message is handed out.

    `gives_numbers`: the connection numbers the rows of the journal.
    The function returns the result for each target, by subscription_id, once the queries have their rows.
    Raises NeedsCoordinator.
    """
    outcomes = [_outcome(request, state) for state in states]
    attempts = _attempts_of(request, states, attempt_ids)
    at = request.handed_out_at()
    upcoming: dict[int, datetime] = {}
    queries = [
        *_move_cursors(request, outcomes),
        # Before the rows of the messages that are delivered now, which are not meant; and after retry delays.
        *_read_next(request, outcomes, upcoming),
        *_insert_attempts(request, states, attempts, at),
        *_record(request, outcomes, attempts, attempt_ids, at, gives_numbers=gives_numbers),
        *bodies.missing([attempt.plan.ranges for attempt in attempts], request.shard_id),
        # Without attempts the commit need not wait for the disk: messages that were skipped would be skipped again.
        *(_COMMIT if attempts else _COMMIT_NOTHING),
    ]

    def results() -> Mapping[int, Claimed]:
        deliveries = _deliveries_of(request, attempts, bodies)
        return {outcome.state.subscription_id: _result(outcome, deliveries, upcoming) for outcome in outcomes}

    return queries, results


# --- the outcome for a target -------------------------------------------------------------------------------------


class _Outcome(msgspec.Struct, frozen=True):
    """The remaining work for a target, as far as it is known once everything is allocated.

    `due_floor`: the floor that is written with its cursor (None: the cursor is not written).  `more`: more messages
    may be claimed at once.  `only_just_retried`: those are left because they were just retried.  `asks_for_next`:
    the time of the next redelivery has to be read.  `passes`: messages may have been found that are not delivered,
    because they are too old or no longer in the log.  `expired`: messages whose ack deadline had passed.
    """

    state: TargetState
    due_floor: datetime | None
    more: bool
    only_just_retried: bool
    asks_for_next: bool
    passes: bool
    expired: int


def _outcome(request: ClaimRequest, state: TargetState) -> _Outcome:
    target, cursor, allocation = state.target, state.cursor, state.allocation
    rows: list[DueAttempt | OrderedRun] = [*state.due, *state.runs]
    left = [row for row in rows if row.is_left]
    others = allocation.more or state.changed_meanwhile  # other messages may be left
    more = others or state.beyond is not None or bool(left)
    due_floor = None
    if rows or allocation.position is not None:
        due_floor = cursor.due_floor
        if target.includes_due:  # otherwise nothing new is known
            times = [row.next_delivery_at for row in rows if row.stays]
            due_floor = max(due_floor, due_floor_after(request.now, times, state.beyond))
    asks_for_next = False
    if target.includes_due and not more:
        given = zip(allocation.allocations, allocation.runs, strict=True)
        gets_nothing = [not (each.fresh or each.redelivered or runs) for each, runs in given]
        asks_for_next = target.wants_next or any(gets_nothing)
    return _Outcome(
        state=state,
        due_floor=due_floor,
        more=more,
        # A claim reads such rows last, so it has read all others.
        only_just_retried=target.leaves_just_retried
        and not others
        and bool(left)
        and all(row.is_just_retried for row in left),
        asks_for_next=asks_for_next,
        passes=bool(state.runs or allocation.past)
        or cursor.next_publish_time < target.retained_since
        or any(row.past or row.gone for row in state.due),
        expired=sum([row.expired for row in rows]),
    )


def _result(
    outcome: _Outcome,
    deliveries: Mapping[tuple[int, int], Sequence[Delivery]],
    upcoming: Mapping[int, datetime],
) -> Claimed:
    state, subscription_id = outcome.state, outcome.state.target.subscription_id
    times = [time for time in (upcoming.get(subscription_id), state.allocation.until) if time is not None]
    return Claimed(
        [deliveries.get((subscription_id, number), ()) for number in range(len(state.target.requests))],
        More() if outcome.more else Quiet(min(times, default=None)),
        expired=outcome.expired,
        past=sum(count_of(ranges) for _, ranges in expired_of(state)) if outcome.passes else 0,
        only_just_retried=outcome.only_just_retried,
    )


# --- attempts, and what the journal says of them ------------------------------------------------------------------


class _Attempt(msgspec.Struct, frozen=True):
    """A planned attempt with its id."""

    state: TargetState
    plan: PlannedAttempt
    attempt_id: int


def _attempts_of(
    request: ClaimRequest, states: Sequence[TargetState], attempt_ids: AttemptIds
) -> Sequence[_Attempt]:
    """The attempts that are delivered.  A run that is delivered, or has lost messages, gets a new attempt id."""
    planned = [(state, plan) for state in states for plan in state.allocation.attempts]
    lost = [run for state in states for run in state.runs if run.phase is Phase.LOST]
    ids = iter(attempt_ids.take(len(planned) + len(lost), now=request.now))
    for run in lost:
        run.new_attempt_id = next(ids)
    attempts = [_Attempt(state, plan, attempt_id) for (state, plan), attempt_id in zip(planned, ids, strict=True)]
    for attempt in attempts:
        if attempt.plan.run is not None:
            attempt.plan.run.new_attempt_id = attempt.attempt_id
    return attempts


def _deliveries_of(
    request: ClaimRequest, attempts: Iterable[_Attempt], bodies: Bodies
) -> Mapping[tuple[int, int], Sequence[Delivery]]:
    """The deliveries by subscription and request.

    The body of a message is missing if its partition was dropped after the message was found.  The whole attempt is
    not delivered then: it falls due, and a claim takes out of it what the log no longer has.
    """
    deliveries: defaultdict[tuple[int, int], list[Delivery]] = defaultdict(list)
    for attempt in attempts:
        plan = attempt.plan
        messages = bodies.of(plan.ranges)
        if messages is not None:
            deliveries[attempt.state.subscription_id, plan.request].append(
                Delivery(request.shard_id, attempt.attempt_id, plan.number, messages, plan.ordered, plan.returned)
            )
    return deliveries


def _record(
    request: ClaimRequest,
    outcomes: Sequence[_Outcome],
    attempts: Sequence[_Attempt],
    attempt_ids: AttemptIds,
    at: datetime,
    *,
    gives_numbers: bool,
) -> list[Query]:
    """Record what is delivered, and what is not.  Raises NeedsCoordinator."""
    passed = [outcome.state for outcome in outcomes if outcome.passes]
    given_up = give_up_expired(request, passed, attempt_ids, at) if passed else []
    rows = [row for attempt in attempts if attempt.state.target.journal is not None for row in _journal_of(attempt)]
    rows += (row for state in passed for row in journal_of_expired(state))
    journal = [journal_statement(request.shard_id, rows, at)] if rows else []
    if passed:
        journal += [*record_old_redeliveries(request, passed, at), *record_old_messages(request, passed, at)]
    if journal and not gives_numbers:
        raise NeedsCoordinator
    return [Query(bound) for bound in (*given_up, *journal)]


def _journal_of(attempt: _Attempt) -> Iterable[Row]:
    target, plan = attempt.state.target, attempt.plan
    return rows_of(
        target.journal,
        target.subscription_id,
        Event.HANDED_OUT,
        plan.number,
        [(each.first_seq, each.end) for each in plan.ranges],
        author=target.requests[plan.request].author,
    )


# --- due rows and cursors -----------------------------------------------------------------------------------------


def _move_cursors(request: ClaimRequest, outcomes: Sequence[_Outcome]) -> list[Query]:
    """Rewrite the due rows that have changed, and move the cursors that have passed or found something."""
    queries = []
    states = [outcome.state for outcome in outcomes]
    columns = replacements([(state.subscription_id, row) for state in states for row in state.due])
    retimed = [_retimed(run) for state in states for run in state.runs if run.retimed]
    if retimed:
        of_runs = _by_column(retimed)
        columns = of_runs if columns is None else {name: columns[name] + of_runs[name] for name in of_runs}
    if columns:
        queries.append(Query((_REPLACE_ATTEMPTS, {"shard_id": request.shard_id, **columns})))
    moved = [(outcome.state, outcome.due_floor) for outcome in outcomes if outcome.due_floor is not None]
    if moved:
        positions = [state.allocation.position or state.cursor[:2] for state, _ in moved]
        asked = {
            **request.where([state.subscription_id for state, _ in moved]),
            "next_publish_times": [publish_time for publish_time, _ in positions],
            "next_seqs": [seq for _, seq in positions],
            "due_floors": [due_floor for _, due_floor in moved],
            "due_firsts": [state.cursor.due_first != state.passes_turn for state, _ in moved],
        }
        queries.append(Query((_MOVE_CURSORS, asked)))
    return queries


def _retimed(run: OrderedRun) -> dict[str, Any]:
    """A row of replace_attempts.sql for a run whose retry delay begins, or that is exhausted."""
    return {
        "subscription_ids": run.subscription_id,
        "attempt_ids": run.attempt_id,
        "parts": 0,
        "open": run.bits,
        "statuses": run.status,
        "next_delivery_ats": run.next_delivery_at,
    }


def _read_next(request: ClaimRequest, outcomes: Sequence[_Outcome], upcoming: dict[int, datetime]) -> list[Query]:
    """Read into `upcoming` when the next redelivery is due, by subscription, where that is asked for."""
    asking = [outcome.state.subscription_id for outcome in outcomes if outcome.asks_for_next]
    if not asking:
        return []

    def take(rows: Iterable[Any]) -> None:
        upcoming.update((row.subscription_id, row.next_delivery_at) for row in rows)

    asked = {**request.where(asking), "now": request.now}
    return [Query((_READ_NEXT_DELIVERY_ATS, asked), take)]


# --- attempts -----------------------------------------------------------------------------------------------------


def _insert_attempts(
    request: ClaimRequest, states: Iterable[TargetState], attempts: Sequence[_Attempt], at: datetime
) -> list[Query]:
    """Write the rows of the attempts: those that hold ordering keys, and others."""
    bound = rewrite_runs(request, states, at)
    plain = [attempt for attempt in attempts if not attempt.plan.ordered]
    if plain:
        bound.append(_insert(plain, request.shard_id, at))
    redriven = [attempt for attempt in plain if attempt.plan.redriven]
    if redriven:
        where = request.where([attempt.state.subscription_id for attempt in redriven])
        bound.append((_MARK_REDRIVEN, {**where, "attempt_ids": [attempt.attempt_id for attempt in redriven]}))
    of_keys = [attempt for attempt in attempts if attempt.plan.ordered and attempt.plan.run is None]
    if of_keys:
        bound.append(_insert_runs(of_keys, request.shard_id, at))
    return [Query(each) for each in bound]


def _insert(attempts: Sequence[_Attempt], shard_id: int, at: datetime) -> Bound:
    targets = [attempt.state.target for attempt in attempts]
    runs = [attempt.plan.ranges for attempt in attempts]
    distinct = {id(run): run for run in runs}  # rows often share a run
    held = {name: (multirange(run), count_of(run)) for name, run in distinct.items()}
    rows: dict[str, list[Any]] = {
        "subscription_ids": [target.subscription_id for target in targets],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "attempt_numbers": [attempt.plan.number for attempt in attempts],
        "ack_deadlines": _ack_deadlines(targets, at),
        "exactly_once": [target.exactly_once for target in targets],
        "seqs": [held[id(run)][0] for run in runs],
        "counts": [held[id(run)][1] for run in runs],
        "first_publish_times": [run[0].publish_time for run in runs],
        "last_publish_times": [run[-1].publish_time for run in runs],
    }
    where = {"shard_id": shard_id, "now": at}
    if len(attempts) > 1:
        return _INSERT_DELIVERY_ATTEMPTS, {**where, **rows}
    return _INSERT_DELIVERY_ATTEMPT, {**where, **{name: value for name, [value] in rows.items()}}


def _ack_deadlines(targets: Sequence[ClaimTarget], at: datetime) -> list[datetime]:
    """Returns the ack deadline of each target; equal ones are the same object, which is then encoded once."""
    known = {ack_deadline: at + ack_deadline for ack_deadline in {each.ack_deadline for each in targets}}
    return [known[each.ack_deadline] for each in targets]


def _by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each name, in the order of the rows, of which there is one at least."""
    return {name: [row[name] for row in rows] for name in rows[0]}


# --- ordering keys ------------------------------------------------------------------------------------------------


def release_keys(request: ClaimRequest, states: Iterable[TargetState]) -> list[Query]:
    """Delete the rows of keys that no message waits for any more: before fresh messages are read."""
    free = [(state.target, run) for state in states for run in state.runs if run.phase is Phase.FREE]
    if not free:
        return []
    return [Query(each) for each in (*_keep_acks(request, free), (_DELETE_ORDERED_RUNS, _named(request, free)))]


def rewrite_runs(request: ClaimRequest, states: Iterable[TargetState], at: datetime) -> list[Bound]:
    """Rewrite the rows of keys that are delivered, or that have lost messages."""
    changed = [(state.target, run) for state in states for run in state.runs if run.new_attempt_id]
    if not changed:
        return []
    rows = [_row(request, target, run, at) for target, run in changed]
    replaced = {"shard_id": request.shard_id, "now": at, **_by_column(rows)}
    return [*_keep_acks(request, changed), (_REPLACE_ORDERED_RUNS, replaced)]


def _keep_acks(request: ClaimRequest, runs: Sequence[tuple[ClaimTarget, OrderedRun]]) -> list[Bound]:
    exactly_once = [(target, run) for target, run in runs if target.exactly_once]
    if not exactly_once:
        return []
    untils = [request.now + target.ack_deadline for target, _ in exactly_once]
    return [(_KEEP_ACKS, {**_named(request, exactly_once), "untils": untils})]


def _named(request: ClaimRequest, runs: Sequence[tuple[ClaimTarget, OrderedRun]]) -> dict[str, Any]:
    return {
        **request.where([run.subscription_id for _, run in runs]),
        "attempt_ids": [run.attempt_id for _, run in runs],
    }


def _row(request: ClaimRequest, target: ClaimTarget, run: OrderedRun, at: datetime) -> Mapping[str, Any]:
    out = [message.first_seq for message in run.taken]
    behind = run.behind()
    numbers = [run.next_number] * len(out) + [number for _, number in behind]
    first, last = run.first_publish_time, run.last_publish_time
    if out:
        last = max(last, run.taken[-1].publish_time)
        if not (run.redriven and run.left):  # redriven messages wait after those that failed, and may be older
            first = run.taken[0].publish_time
    return {
        "subscription_ids": run.subscription_id,
        "attempt_ids": run.attempt_id,
        "new_attempt_ids": run.new_attempt_id,
        "exactly_once": target.exactly_once,
        "statuses": "delivering" if out else "pending",
        "next_delivery_ats": at + target.ack_deadline if out else request.now,
        "seqs": to_multirange(out + [seq for seq, _ in behind]),
        "out_counts": len(out),
        "attempt_numbers": "{" + ",".join(map(str, numbers)) + "}",
        "waiting_froms": run.waiting_from,
        "first_publish_times": first,
        "last_publish_times": last,
    }


def _insert_runs(attempts: Sequence[_Attempt], shard_id: int, at: datetime) -> Bound:
    """Insert rows, from `at` on, for the first messages of keys that have none."""
    targets = [attempt.state.target for attempt in attempts]
    of_keys = [attempt.plan.ranges for attempt in attempts]
    rows = {
        "shard_id": shard_id,
        "now": at,
        "subscription_ids": [target.subscription_id for target in targets],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "ordering_keys": [messages[0].ordering_key for messages in of_keys],
        "ack_deadlines": _ack_deadlines(targets, at),
        "exactly_once": [target.exactly_once for target in targets],
        "seqs": list(map(multirange, of_keys)),
        "counts": list(map(len, of_keys)),
        "first_publish_times": [messages[0].publish_time for messages in of_keys],
        "last_publish_times": [messages[-1].publish_time for messages in of_keys],
    }
    return _INSERT_ORDERED_RUNS, rows
