"""What a claim writes: rows, cursors and ordering keys as they are once it has committed.

The rows that hold ordering keys are only inserted and deleted here, under the cursor's lock, or a claim would pass
messages that no other claim looks up (tests/store/interleavings/test_ordering_rules.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

from broker.domain.delivery import Delivery
from broker.domain.journal import Event, Row, rows_of
from broker.domain.message_range import count_of, multirange
from broker.domain.ordered_run import OrderedRun, Phase
from broker.domain.sequences import to_multirange
from broker.store.claim.fresh import Bodies
from broker.store.claim.request import ClaimRequest, ClaimTarget, Query
from broker.store.claim.state import PlannedAttempt, TargetState
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound
from broker.store.driver.statements import Statement
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.due_attempt import due_floor_after, replacements

_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_MOVE_CURSOR = statements.hot("move_cursor")
_MOVE_CURSORS = statements.hot("move_cursors")
_READ_NEXT_DELIVERY_AT = statements.hot("read_next_delivery_at")
_READ_NEXT_DELIVERY_ATS = statements.hot("read_next_delivery_ats")
_INSERT_DELIVERY_ATTEMPT = statements.hot("insert_delivery_attempt")
_INSERT_DELIVERY_ATTEMPTS = statements.hot("insert_delivery_attempts")
_MARK_REDRIVEN = statements.hot("mark_redriven")
_INSERT_ORDERED_RUNS = statements.hot("insert_ordered_runs")
_REPLACE_ORDERED_RUNS = statements.hot("replace_ordered_runs")
_DELETE_ORDERED_RUNS = statements.hot("delete_ordered_runs")
_KEEP_ACKS = statements.hot("keep_acks")


class Attempt(msgspec.Struct, frozen=True):
    """A planned attempt with its id."""

    state: TargetState
    plan: PlannedAttempt
    attempt_id: int


def attempts_of(request: ClaimRequest, states: Sequence[TargetState], attempt_ids: AttemptIds) -> Sequence[Attempt]:
    """The attempts that are delivered.  A run that is delivered, or has lost messages, gets a new attempt id."""
    planned = [(state, plan) for state in states for plan in state.allocation.attempts]
    lost = [run for state in states for run in state.runs if run.phase is Phase.LOST]
    ids = iter(attempt_ids.take(len(planned) + len(lost), now=request.now))
    for run in lost:
        run.new_attempt_id = next(ids)
    attempts = [Attempt(state, plan, attempt_id) for (state, plan), attempt_id in zip(planned, ids, strict=True)]
    for attempt in attempts:
        if attempt.plan.run is not None:
            attempt.plan.run.new_attempt_id = attempt.attempt_id
    return attempts


def deliveries_of(
    request: ClaimRequest, attempts: Iterable[Attempt], bodies: Bodies
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


def journal_of_attempts(attempts: Sequence[Attempt]) -> list[Row]:
    """The rows of the journal for the attempts of subscriptions that have one."""
    return [
        row
        for attempt in attempts
        if attempt.state.target.journal is not None
        for row in rows_of(
            attempt.state.target.journal,
            attempt.state.subscription_id,
            Event.HANDED_OUT,
            attempt.plan.number,
            [(each.first_seq, each.end) for each in attempt.plan.ranges],
            author=attempt.state.target.requests[attempt.plan.request].author,
        )
    ]


# --- due rows and cursors -----------------------------------------------------------------------------------------


def move_cursors(request: ClaimRequest, states: Sequence[TargetState], *, on_nodes: bool) -> list[Query]:
    """Rewrite the due rows that have changed, and move the cursors that have passed or looked up something."""
    queries = []
    columns = replacements([(state.subscription_id, row) for state in states for row in state.due])
    retimed = [_retimed(run) for state in states for run in state.runs if run.retimed]
    if retimed:
        of_runs = _by_column(retimed)
        columns = of_runs if columns is None else {name: columns[name] + of_runs[name] for name in of_runs}
    if columns:
        queries.append(Query((_REPLACE_ATTEMPTS, {"shard_id": request.shard_id, **columns})))
    moved = [state for state in states if state.allocation.position is not None or state.due or state.runs]
    if moved:
        positions = [state.allocation.position or state.cursor[:2] for state in moved]
        asked = {
            **request.where([state.subscription_id for state in moved]),
            "next_publish_times": [publish_time for publish_time, _ in positions],
            "next_seqs": [seq for _, seq in positions],
            "due_floors": [_due_floor(state, request.now) for state in moved],
            "due_firsts": [state.cursor.due_first != state.passes_turn for state in moved],
        }
        queries.append(_on_nodes(_MOVE_CURSOR, _MOVE_CURSORS, asked, alone=on_nodes and len(moved) == 1))
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


def _due_floor(state: TargetState, now: datetime) -> datetime:
    """The due floor once this claim has committed.  A claim that did not look up due rows knows nothing new."""
    if not state.target.looks_for_due:
        return state.cursor.due_floor
    times = chain(
        (row.next_delivery_at for row in state.due if row.stays),
        (run.next_delivery_at for run in state.runs if run.stays_due),
    )
    return max(state.cursor.due_floor, due_floor_after(now, times, state.beyond))


def read_next(
    request: ClaimRequest, asking: Sequence[TargetState], upcoming: dict[int, datetime], *, on_nodes: bool
) -> list[Query]:
    """Read into `upcoming` when the next redelivery of these targets is due, by subscription."""
    if not asking:
        return []

    def take(rows: Iterable[Any]) -> None:
        upcoming.update((row.subscription_id, row.next_delivery_at) for row in rows)

    asked = {**request.where([state.subscription_id for state in asking]), "now": request.now}
    alone = on_nodes and len(asking) == 1
    return [_on_nodes(_READ_NEXT_DELIVERY_AT, _READ_NEXT_DELIVERY_ATS, asked, alone=alone, take=take)]


def _on_nodes(one: Statement, several: Statement, asked: dict[str, Any], *, alone: bool, take: Any = None) -> Query:
    """The statement for one subscription, if the claim is about one `alone` and shards are on nodes
    (docs/decisions/0059); its parameters have the names of the other's in the singular.
    """
    if not alone:
        return Query((several, asked), take)
    single = {name.removesuffix("s"): value[0] for name, value in asked.items() if isinstance(value, list)}
    return Query(
        (one, {name: value for name, value in asked.items() if not isinstance(value, list)} | single), take
    )


# --- attempts -----------------------------------------------------------------------------------------------------


def insert_attempts(
    request: ClaimRequest, states: Iterable[TargetState], attempts: Sequence[Attempt], at: datetime
) -> list[Query]:
    """Write the rows of the attempts: of ordering keys, and others."""
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


def _insert(attempts: Sequence[Attempt], shard_id: int, at: datetime) -> Bound:
    targets = [attempt.state.target for attempt in attempts]
    runs = [attempt.plan.ranges for attempt in attempts]
    distinct = {id(run): run for run in runs}  # rows often hold the very same
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
    """When each attempt falls due; the same object for the same deadline, which is then encoded once."""
    known = {ack_deadline: at + ack_deadline for ack_deadline in {each.ack_deadline for each in targets}}
    return [known[each.ack_deadline] for each in targets]


def _by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each name, in the order of the rows, of which there is one at least."""
    return {name: [row[name] for row in rows] for name in rows[0]}


# --- ordering keys ------------------------------------------------------------------------------------------------


def release_keys(request: ClaimRequest, states: Iterable[TargetState]) -> list[Query]:
    """Delete the rows of keys of which no message waits any more: before fresh messages are read."""
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
        if not (run.redriven and run.left):  # redriven messages wait behind those that failed, and may be older
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


def _insert_runs(attempts: Sequence[Attempt], shard_id: int, at: datetime) -> Bound:
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
