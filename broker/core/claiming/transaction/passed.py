"""Messages that a claim does not deliver because they have expired, or because they are older than the retention.

An expired message has exceeded its time to live.  It is either skipped like a message that the filter does not
match, and counted; or it is forwarded to the dead-letter topic, if the subscription is configured to do so.
Messages older than the retention are recorded for every subscription (F3): a claim looks for them in the log only
if a cursor or a row is behind the retention.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from broker.core.claiming.transaction.allocation import Source, close_runs
from broker.core.claiming.transaction.ordered_run import OrderedRun, Phase
from broker.core.claiming.transaction.request import MAX_BYTES, ClaimRequest
from broker.core.claiming.transaction.state import TargetState
from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound
from broker.model.dead_letter import EXPIRED
from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT
from broker.model.due_attempt import DueAttempt
from broker.model.journal import BUCKET, TIME_TO_LIVE, Event, Row, ranges_of, rows_of
from broker.model.message_range import MessageRange, count_of, multirange
from broker.model.timestamps import END_OF_TIME

_MAX_MESSAGES = 10_000  # of a key; beyond that nothing is recorded

_INSERT_GIVEN_UP = statements.hot("insert_given_up")
_INSERT_GONE = statements.hot("insert_gone")
_INSERT_EXPIRED = statements.hot("insert_expired")
_INSERT_EXPIRED_OF_KEYS = statements.hot("insert_expired_of_keys")


# --- expired messages ---------------------------------------------------------------------------------------------


def expired_of(state: TargetState) -> list[tuple[int, Sequence[MessageRange]]]:
    """The expired messages that a claim removes for a target, by how often they were delivered."""
    expired: list[tuple[int, Sequence[MessageRange]]] = []
    if state.allocation.past:
        expired.append((0, state.allocation.past))
    expired += [(row.attempt_number, row.past) for row in state.due if row.past]
    expired += [(run.numbers[0] if run.left else 0, run.passed) for run in state.runs if run.passed]
    return expired


def journal_of_expired(state: TargetState) -> Iterator[Row]:
    """The journal has them whatever events it records; the forwarder writes about those that are left to it."""
    for number, messages in () if state.target.gives_up_expired else expired_of(state):
        ranges = [(each.first_seq, each.end) for each in sorted(messages)]
        yield from rows_of(None, state.subscription_id, Event.EXPIRED, number, ranges, answer=TIME_TO_LIVE)


def give_up_expired(
    request: ClaimRequest, states: Iterable[TargetState], attempt_ids: AttemptIds, at: datetime
) -> list[Bound]:
    """Leave expired messages to the dead-letter forwarder, where the target says so."""
    rows = [
        (state.subscription_id, number, run)
        for state in states
        if state.target.gives_up_expired
        for number, messages in expired_of(state)
        for run in _rows_of(sorted(messages))
    ]
    if not rows:
        return []
    given_up = {
        "shard_id": request.shard_id,
        "now": at,
        "failure": EXPIRED,
        "subscription_ids": [subscription_id for subscription_id, _, _ in rows],
        "attempt_ids": list(attempt_ids.take(len(rows), now=request.now)),
        "attempt_numbers": [number for _, number, _ in rows],
        "seqs": [multirange(run) for _, _, run in rows],
        "counts": [count_of(run) for _, _, run in rows],
        "first_publish_times": [run[0].publish_time for _, _, run in rows],
        "last_publish_times": [run[-1].publish_time for _, _, run in rows],
    }
    return [(_INSERT_GIVEN_UP, given_up)]


def _rows_of(messages: Sequence[MessageRange]) -> Iterator[Sequence[MessageRange]]:
    """Divides messages into those of one row: as many as a row holds, and not far apart."""
    for run in close_runs(messages):
        source = Source(run)
        while taken := source.take(MAX_MESSAGES_PER_ATTEMPT, MAX_BYTES, at_least=1):
            yield taken


# --- messages older than the retention ----------------------------------------------------------------------------


def record_old_redeliveries(request: ClaimRequest, states: Iterable[TargetState], at: datetime) -> list[Bound]:
    """Record messages that were delivered, are due again, and are not in the log any more for this subscription."""
    rows = list(_old_redeliveries(states))
    if not rows:
        return []
    gone = {
        **request.where([row.subscription_id for row, _, _ in rows]),
        "now": at,
        "buckets": [row.bucket for row, _, _ in rows],
        "attempts": [row.attempt for row, _, _ in rows],
        "seqs": [row.seqs for row, _, _ in rows],
        "filtered_sinces": [since for _, since, _ in rows],
        "last_publish_times": [last for _, _, last in rows],
    }
    return [(_INSERT_GONE, gone)]


def _old_redeliveries(states: Iterable[TargetState]) -> Iterator[tuple[Row, datetime, datetime]]:
    """Yields entries of the journal, each with the time from which on not the retention but a filter has left
    messages out (END_OF_TIME: it has left out none), and the last publish time.
    """
    for state in states:
        since, is_filtered = state.target.retained_since, state.target.filter_path is not None
        rows: list[tuple[int, DueAttempt | OrderedRun]] = [
            (row.attempt_number, row) for row in state.due if row.gone
        ]
        rows += [(run.numbers[0], run) for run in state.runs if run.new_attempt_id and run.gone]
        for attempt, row in rows:
            if is_filtered and row.first_publish_time >= since:
                continue
            is_all_old = not is_filtered or row.last_publish_time < since
            for entry in _rows(state, attempt, row.gone):
                yield entry, END_OF_TIME if is_all_old else since, row.last_publish_time


def _rows(state: TargetState, attempt: int, seqs: Sequence[int]) -> Iterator[Row]:
    return rows_of(None, state.subscription_id, Event.EXPIRED, attempt, ranges_of(sorted(seqs)))


def record_old_messages(request: ClaimRequest, states: Sequence[TargetState], at: datetime) -> list[Bound]:
    """Record messages that were never delivered."""
    recorded: list[Bound] = []
    passed = [
        state
        for state in states
        if state.allocation.position is not None and state.cursor.next_publish_time < state.target.retained_since
    ]
    if passed:
        recorded.append((_INSERT_EXPIRED, _of_cursors(request, passed, at)))
    keys = [
        (state, run)
        for state in states
        for run in state.runs
        if not run.left
        and (run.new_attempt_id or run.phase is Phase.FREE)
        and run.first_publish_time < state.target.retained_since
    ]
    if keys:
        recorded.append((_INSERT_EXPIRED_OF_KEYS, _of_keys(request, keys, at)))
    return recorded


def _of_cursors(request: ClaimRequest, passed: Sequence[TargetState], at: datetime) -> dict[str, Any]:
    return {
        **request.where([state.subscription_id for state in passed]),
        "now": at,
        "next_publish_times": [state.cursor.next_publish_time for state in passed],
        "next_seqs": [state.cursor.next_seq for state in passed],
        "sinces": [state.target.retained_since for state in passed],
    }


def _of_keys(request: ClaimRequest, keys: Sequence[tuple[TargetState, OrderedRun]], at: datetime) -> dict[str, Any]:
    return {
        **request.where([state.subscription_id for state, _ in keys]),
        "now": at,
        "ordering_keys": [run.ordering_key for _, run in keys],
        "first_publish_times": [run.first_publish_time for _, run in keys],
        "waiting": [run.waiting for _, run in keys],
        "next_seqs": [state.cursor.next_seq for state, _ in keys],
        "sinces": [state.target.retained_since for state, _ in keys],
        "filter_paths": [state.target.filter_path for state, _ in keys],
        "body_paths": [state.target.body_path for state, _ in keys],
        "bucket": BUCKET,
        "max_messages": _MAX_MESSAGES,
    }
