"""Due messages: locks the rows that are due, and finds those of their messages that still exist in the log."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from broker.core.claiming.transaction.allocation import RETRY_SPACING, Redelivery, due_order, is_just_retried
from broker.core.claiming.transaction.ordered_run import OrderedRun, Phase
from broker.core.claiming.transaction.request import ClaimRequest, Query
from broker.core.claiming.transaction.state import TargetState
from broker.db.driver import statements
from broker.model.delivery import MESSAGE_OVERHEAD
from broker.model.due_attempt import DueAttempt, attempt_numbers, due_attempt
from broker.model.message_range import MessageRange
from broker.model.sequences import from_multirange, to_multirange

_LOCK_DUE_ATTEMPTS = statements.hot("lock_due_attempts")
_FIND_DUE_MESSAGES = statements.hot("find_due_messages")
_FIND_MESSAGES_OF_KEYS = statements.hot("find_messages_of_keys")
_FIND_STRAGGLERS_OF_KEYS = statements.hot("find_stragglers_of_keys")

MAX_DUE_ROWS = 200  # rows, of up to 1,000 messages each, that a claim reads for one subscription
MAX_SEEN_ROWS = 20_000  # rows among which a claim for several chooses, without a lock: up to MAX_DUE_ROWS for each
# Rows for all subscriptions together, though at least one for each.  An ordered subscription alone may have as
# many, twice as many as it may deliver: most are of one message, and rows of keys whose messages are all acked only
# wait to be deleted.
MAX_DUE_ROWS_OF_ALL = 4_000
MAX_DUE_MESSAGES = 10_000  # messages that a claim looks up, for all subscriptions together
MAX_RUN = 1_000  # messages of a key that are passed at once, if they have expired


def lock_due(request: ClaimRequest, states: Sequence[TargetState]) -> list[Query]:
    """Lock the rows of these targets that are due."""
    if not states:
        return []
    max_left = max(MAX_DUE_ROWS_OF_ALL // len(states), 1)
    for state in states:
        most = state.target.max_messages
        rows = max(2 * most, MAX_DUE_ROWS) if state.target.ordered else min(most, MAX_DUE_ROWS)
        state.max_due_rows = min(rows, max_left)
    seen = min(MAX_SEEN_ROWS // len(states), MAX_DUE_ROWS)
    asked = {
        **request.where([state.subscription_id for state in states]),
        "max_rows": [state.max_due_rows for state in states],
        "max_seen": [max(state.max_due_rows, seen) for state in states],
        "now": request.now,
        "retried_since": request.now - RETRY_SPACING,
    }
    return [Query((_LOCK_DUE_ATTEMPTS, asked), lambda rows: _take_due(request, states, rows))]


def _take_due(request: ClaimRequest, states: Iterable[TargetState], rows: Iterable[Any]) -> None:
    """Give each target its rows, which are now due."""
    by_subscription: dict[int, list[Any]] = {}
    for row in rows:
        by_subscription.setdefault(row.subscription_id, []).append(row)
    for state in states:
        of_target = by_subscription.get(state.subscription_id, ())
        times = [row.found_at for row in of_target if row.found_at is not None]
        # Set before a retry delay begins: rows that were not read may be due before that.  Messages that were just
        # retried and not read may be due earlier still, but not before the floor, which stays a minute behind.
        if len(times) == state.max_due_rows:
            state.beyond = max(times)
        held = [row for row in of_target if row.found_at is None]
        state.changed_meanwhile = len(held) < len(times)
        state.due = [_due_row(request, row) for row in held if row.ordering_key is None]
        state.runs = [_ordered_run(request, row) for row in held if row.ordering_key is not None]
        due: list[DueAttempt | OrderedRun] = [*state.due, *state.runs]
        for each in due:
            each.begin(
                now=request.now,
                retry_policy=state.target.retry_policy,
                jitter=request.jitter,
                max_attempts=state.target.max_attempts,
            )


def _due_row(request: ClaimRequest, row: Any) -> DueAttempt:
    just_retried = is_just_retried(
        attempt_number=row.attempt_number, delivered_at=row.delivered_at, now=request.now
    )
    return due_attempt(row, redriven=bool(row.redriven), is_just_retried=just_retried)


def _ordered_run(request: ClaimRequest, row: Any) -> OrderedRun:
    head = row.open.find("1")
    came_back = head >= 0
    numbers = attempt_numbers(row.attempt_numbers)[head:] if came_back else []
    return OrderedRun(
        subscription_id=row.subscription_id,
        attempt_id=row.attempt_id,
        status=row.status,
        next_delivery_at=row.next_delivery_at,
        bits=row.open,
        ordering_key=row.ordering_key,
        left=from_multirange(row.seqs)[head:] if came_back else (),
        numbers=numbers,
        waiting=row.waiting,
        first_publish_time=row.first_publish_time,
        last_publish_time=row.last_publish_time,
        redriven=bool(row.redriven),
        is_just_retried=came_back
        and is_just_retried(attempt_number=numbers[0], delivered_at=row.delivered_at, now=request.now),
    )


def find_due(request: ClaimRequest, states: Sequence[TargetState]) -> list[Query]:
    """Find the messages of the rows that are ready, and the next messages of ordering keys."""
    return [*_find_rows(request, _ask_rows(states)), *_find_keys(request, _ask_keys(states))]


def find_due_beyond(request: ClaimRequest, states: Sequence[TargetState]) -> list[Query]:
    """Find more messages than a target would take where all that were found have expired."""
    past = [state for state in states if not state.redeliveries and any(row.past for row in state.due)]
    keys = [
        (state, run, MAX_RUN)
        for state in states
        for run in state.runs
        if run.phase is Phase.LOST and run.past and not run.left
    ]
    for _, run, _ in keys:
        run.past = []  # it is looked up again
    return [*_find_rows(request, _ask_rows(past, most=MAX_DUE_MESSAGES)), *_find_keys(request, keys)]


# --- rows of messages without keys --------------------------------------------------------------------------------


def _ask_rows(states: Iterable[TargetState], most: int | None = None) -> list[tuple[TargetState, DueAttempt]]:
    """The rows whose messages this claim would deliver, in the order of their delivery."""
    max_left = MAX_DUE_MESSAGES
    asked = []
    for state in states:
        quota = min(most or state.target.max_messages, max_left)
        for row in sorted(state.due, key=_row_order):
            if row.ready:
                count = row.ask(quota)
                quota, max_left = quota - count, max_left - count
                if count:
                    asked.append((state, row))
    return asked


def _find_rows(request: ClaimRequest, asked: Sequence[tuple[TargetState, DueAttempt]]) -> list[Query]:
    if not asked:
        return []
    runs = [_run(state, row) for state, row in asked]
    distinct = list(dict.fromkeys(runs))  # endpoints that fail together mostly have the same runs
    return [
        Query(
            (_FIND_DUE_MESSAGES, _wanted(request, distinct)),
            lambda rows: _take_messages(request, asked, runs, distinct, rows),
            sum(len(row.asked) for _, row in asked),
        )
    ]


def _row_order(row: DueAttempt) -> tuple[Any, ...]:
    return row.is_just_retried, row.next_delivery_at, min(row.open, default=0)


def _run(state: TargetState, row: DueAttempt) -> tuple[Any, ...]:
    since = row.first_publish_time if row.redriven else max(row.first_publish_time, state.target.retained_since)
    paths = state.target.paths_from(row.first_publish_time)
    return row.first_publish_time, row.last_publish_time, to_multirange(row.asked), since, *paths


def _wanted(request: ClaimRequest, runs: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    columns = ("first_publish_times", "last_publish_times", "seqs", "sinces", "filter_paths", "body_paths")
    values = dict(zip(columns, map(list, zip(*runs, strict=True)), strict=True))
    return {"shard_id": request.shard_id, "overhead": MESSAGE_OVERHEAD, **values}


def _take_messages(
    request: ClaimRequest,
    asked: Sequence[tuple[TargetState, DueAttempt]],
    runs: Sequence[tuple[Any, ...]],
    distinct: Sequence[tuple[Any, ...]],
    rows: Iterable[Any],
) -> None:
    """Give each target the due messages that exist, in the order in which they were asked for."""
    existing: dict[tuple[Any, ...], dict[int, MessageRange]] = {run: {} for run in distinct}
    at = request.handed_out_at()
    for row in rows:
        publish_time, batch, expires_at = row.publish_time, row.batch, row.expires_at
        existing[distinct[row.run - 1]].update(
            (seq, MessageRange(seq, 1, publish_time, batch, size, None, expires_at))
            for seq, size in zip(row.seqs, row.sizes, strict=True)
        )
    for (state, attempt), run in zip(asked, runs, strict=True):
        of_run = existing[run]
        # Messages that the log no longer has are dropped, or they would be due for ever.
        gone = [seq for seq in attempt.asked if seq not in of_run]
        there = [of_run[seq] for seq in attempt.asked if seq in of_run]
        past = [each for each in there if each.expires_at is not None and each.is_past(at) and not attempt.redriven]
        attempt.gone, attempt.past = [*attempt.gone, *gone], [*attempt.past, *past]
        attempt.drop([*gone, *(message.first_seq for message in past)])
        number = attempt.attempt_number + 1
        if attempt.redriven:
            state.redriven.update(attempt.asked)
        state.redeliveries += (
            Redelivery(number, message, attempt.next_delivery_at, attempt.is_just_retried)
            for message in there
            if message.first_seq in attempt.open
        )


# --- rows of ordering keys ----------------------------------------------------------------------------------------


_Key = tuple[TargetState, OrderedRun, int]  # with the number of its messages


def _ask_keys(states: Iterable[TargetState]) -> list[_Key]:
    """The runs that may be delivered, in their order.

    With a dead-letter policy a message that failed before is delivered alone: it must not take the messages behind
    it along to the dead-letter topic.
    """
    keys = []
    for state in states:
        due = sorted((run for run in state.runs if run.phase is Phase.DUE), key=due_order)
        if not due:
            continue
        target = state.target
        most = max(1, min(target.max_run, target.max_messages // len(due)))
        keys += [(state, run, run.ask(most, alone=target.max_attempts is not None)) for run in due]
    return keys


def _find_keys(request: ClaimRequest, keys: Sequence[_Key]) -> list[Query]:
    if not keys:
        return []
    queries = []
    redriven = [key for key in keys if key[1].redriven]
    if redriven:  # these may be among the stragglers; they go first, because rows of the log are taken last
        asked = _wanted_of_keys(request, redriven)
        queries.append(Query((_FIND_STRAGGLERS_OF_KEYS, asked), lambda rows: _take_stragglers(redriven, rows)))
    asked = _wanted_of_keys(request, keys)
    queries.append(Query((_FIND_MESSAGES_OF_KEYS, asked), lambda rows: _take_messages_of_keys(request, keys, rows)))
    return queries


def _wanted_of_keys(request: ClaimRequest, keys: Sequence[_Key]) -> dict[str, Any]:
    runs = [run for _, run, _ in keys]
    paths = [state.target.paths_from(run.first_publish_time) for state, run, _ in keys]
    return {
        **request.where([run.subscription_id for run in runs]),
        "ordering_keys": [run.ordering_key for run in runs],
        "first_publish_times": [run.first_publish_time for run in runs],
        "seqs": [to_multirange(run.asked) if run.left else run.waiting for run in runs],
        "limits": [limit for _, _, limit in keys],
        "sinces": [_since(state, run) for state, run, _ in keys],
        "filter_paths": [filter_path for filter_path, _ in paths],
        "body_paths": [body_path for _, body_path in paths],
        "overhead": MESSAGE_OVERHEAD,
    }


def _since(state: TargetState, run: OrderedRun) -> datetime:
    return run.first_publish_time if run.redriven else state.target.retained_since


def _take_stragglers(keys: Sequence[_Key], rows: Iterable[Any]) -> None:
    for row in rows:
        _, run, _ = keys[row.run - 1]
        run.available.append(_message_of_key(run, row))


def _message_of_key(run: OrderedRun, row: Any) -> MessageRange:
    return MessageRange(row.seq, 1, row.publish_time, row.batch, row.size, run.ordering_key, row.expires_at)


def _take_messages_of_keys(request: ClaimRequest, keys: Sequence[_Key], rows: Iterable[Any]) -> None:
    at = request.handed_out_at()
    for row in rows:
        _, run, _ = keys[row.run - 1]
        message = _message_of_key(run, row)
        (run.past if message.is_past(at) and not run.redriven else run.available).append(message)
    for _, run, limit in keys:
        if run.redriven:
            by_seq = {message.first_seq: message for message in run.available}
            run.available = [by_seq[seq] for seq in sorted(by_seq)][:limit]
        run.looked_up()
    for state, of_target in groupby(keys, key=itemgetter(0)):
        state.ready = [run for _, run, _ in of_target if run.phase is Phase.READY]
