"""What a claim passes, or lets go, because it is past its retention: written down for every subscription (F3).

It is rare, so plain claims send nothing for it: the log is asked only where a cursor, or a row, stands behind what
is retained.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from broker.domain.journal import BUCKET, Event, Row, ranges_of, rows_of
from broker.domain.ordered_run import OrderedRun, Phase
from broker.store.claim.request import ClaimRequest
from broker.store.claim.work import Work
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound

_MAX_MESSAGES = 10_000  # of a key; of what is beyond nothing is told

_INSERT_GONE = statements.hot("insert_gone")
_INSERT_EXPIRED = statements.hot("insert_expired")
_INSERT_EXPIRED_OF_KEYS = statements.hot("insert_expired_of_keys")


def expired_again(request: ClaimRequest, works: Iterable[Work], at: datetime) -> Iterator[Bound]:
    """What was handed out, has fallen due again, and is not in the log any more for this reader."""
    rows = list(_gone(works))
    if rows:
        yield (
            _INSERT_GONE,
            {
                **request.where([row.subscription_id for row in rows]),
                "now": at,
                "buckets": [row.bucket for row in rows],
                "attempts": [row.attempt for row in rows],
                "seqs": [row.seqs for row in rows],
            },
        )


def _gone(works: Iterable[Work]) -> Iterator[Row]:
    for work in works:
        for row in work.due:
            if row.gone and _is_past(work, row.last_publish_time):
                yield from _rows(work, row.attempt_number, row.gone)
        for run in work.runs:
            if run.new_attempt_id and run.gone and _is_past(work, run.last_publish_time):
                yield from _rows(work, run.numbers[0], run.gone)


def _is_past(work: Work, last_publish_time: datetime) -> bool:
    """Rather than that a filter, another than when it was handed out, leaves it out now."""
    return work.claimant.filter_path is None or last_publish_time < work.claimant.retained_since


def _rows(work: Work, attempt: int, seqs: Sequence[int]) -> Iterator[Row]:
    return rows_of(None, work.subscription_id, Event.EXPIRED, attempt, ranges_of(sorted(seqs)))


def expired_unread(request: ClaimRequest, works: Sequence[Work], at: datetime) -> Iterator[Bound]:
    """What was never handed out."""
    passed = [
        work
        for work in works
        if work.portion.position is not None and work.cursor.next_publish_time < work.claimant.retained_since
    ]
    if passed:
        yield _INSERT_EXPIRED, _of_cursors(request, passed, at)
    keys = [
        (work, run)
        for work in works
        for run in work.runs
        if not run.left
        and (run.new_attempt_id or run.phase is Phase.FREE)
        and run.first_publish_time < work.claimant.retained_since
    ]
    if keys:
        yield _INSERT_EXPIRED_OF_KEYS, _of_keys(request, keys, at)


def _of_cursors(request: ClaimRequest, passed: Sequence[Work], at: datetime) -> dict[str, Any]:
    return {
        **request.where([work.subscription_id for work in passed]),
        "now": at,
        "next_publish_times": [work.cursor.next_publish_time for work in passed],
        "next_seqs": [work.cursor.next_seq for work in passed],
        "sinces": [work.claimant.retained_since for work in passed],
    }


def _of_keys(request: ClaimRequest, keys: Sequence[tuple[Work, OrderedRun]], at: datetime) -> dict[str, Any]:
    return {
        **request.where([work.subscription_id for work, _ in keys]),
        "now": at,
        "ordering_keys": [run.ordering_key for _, run in keys],
        "first_publish_times": [run.first_publish_time for _, run in keys],
        "waiting": [run.waiting for _, run in keys],
        "next_seqs": [work.cursor.next_seq for work, _ in keys],
        "sinces": [work.claimant.retained_since for work, _ in keys],
        "filter_paths": [work.claimant.filter_path for work, _ in keys],
        "body_paths": [work.claimant.body_path for work, _ in keys],
        "bucket": BUCKET,
        "max_messages": _MAX_MESSAGES,
    }
