"""What a claim writes of the rows that hold ordering keys.

They come and go only here, under the cursor's lock, or a claim would pass a message that nobody looks for
(tests/store/interleavings/test_ordering_rules.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from broker.domain.ordered_run import OrderedRun, Phase
from broker.domain.sequences import to_multirange
from broker.domain.stretch import Stretch, multirange
from broker.store.claim.columns import by_column
from broker.store.claim.request import Claimant, ClaimRequest, ack_deadlines
from broker.store.claim.work import Work
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound

_INSERT_ORDERED_RUNS = statements.hot("insert_ordered_runs")
_REPLACE_ORDERED_RUNS = statements.hot("replace_ordered_runs")
_DELETE_ORDERED_RUNS = statements.hot("delete_ordered_runs")
_KEEP_ACKS = statements.hot("keep_acks")


def clear_away(request: ClaimRequest, works: Iterable[Work]) -> Iterator[Bound]:
    """Lets go of the keys of which nothing waits any more: before fresh messages are read."""
    free = [(work.claimant, run) for work in works for run in work.runs if run.phase is Phase.FREE]
    if free:
        yield from _keep_acks(request, free)
        yield _DELETE_ORDERED_RUNS, _named(request, free)


def retimed_rows(works: Iterable[Work]) -> Iterator[dict[str, Any]]:
    """Rows of replace_attempts.sql: runs whose retry delay begins, or that are exhausted."""
    for work in works:
        for run in work.runs:
            if run.retimed:
                yield {
                    "subscription_ids": run.subscription_id,
                    "attempt_ids": run.attempt_id,
                    "parts": 0,
                    "open": run.bits,
                    "statuses": run.status,
                    "next_delivery_ats": run.next_delivery_at,
                }


def rewrite_runs(request: ClaimRequest, works: Iterable[Work], at: datetime) -> Iterator[Bound]:
    """The rows of keys that go out, or that have lost messages."""
    changed = [(work.claimant, run) for work in works for run in work.runs if run.new_attempt_id]
    if changed:
        yield from _keep_acks(request, changed)
        rows = [_row(request, claimant, run, at) for claimant, run in changed]
        yield _REPLACE_ORDERED_RUNS, {"shard_id": request.shard_id, "now": at, **by_column(rows)}


def _keep_acks(request: ClaimRequest, runs: Sequence[tuple[Claimant, OrderedRun]]) -> Iterator[Bound]:
    exactly_once = [(claimant, run) for claimant, run in runs if claimant.exactly_once]
    if exactly_once:
        untils = [request.now + claimant.ack_deadline for claimant, _ in exactly_once]
        yield _KEEP_ACKS, {**_named(request, exactly_once), "untils": untils}


def _named(request: ClaimRequest, runs: Sequence[tuple[Claimant, OrderedRun]]) -> dict[str, Any]:
    return {
        **request.where([run.subscription_id for _, run in runs]),
        "attempt_ids": [run.attempt_id for _, run in runs],
    }


def _row(request: ClaimRequest, claimant: Claimant, run: OrderedRun, at: datetime) -> Mapping[str, Any]:
    out = [message.first_seq for message in run.taken]
    behind = run.behind()
    numbers = [run.next_number] * len(out) + [number for _, number in behind]
    first, last = run.first_publish_time, run.last_publish_time
    if out:
        last = max(last, run.taken[-1].publish_time)
        if not (run.redriven and run.left):  # what was redriven waits behind what failed, and may be older
            first = run.taken[0].publish_time
    return {
        "subscription_ids": run.subscription_id,
        "attempt_ids": run.attempt_id,
        "new_attempt_ids": run.new_attempt_id,
        "exactly_once": claimant.exactly_once,
        "statuses": "delivering" if out else "pending",
        "next_delivery_ats": at + claimant.ack_deadline if out else request.now,
        "seqs": to_multirange(out + [seq for seq, _ in behind]),
        "out_counts": len(out),
        "attempt_numbers": "{" + ",".join(map(str, numbers)) + "}",
        "waiting_froms": run.waiting_from,
        "first_publish_times": first,
        "last_publish_times": last,
    }


def new_runs(
    request: ClaimRequest, runs: Sequence[tuple[Claimant, int, Sequence[Stretch]]], at: datetime
) -> Iterator[Bound]:
    """Rows, from `at` on, for the first messages of keys that have none; each with its attempt id."""
    if not runs:
        return
    claimants = [claimant for claimant, _, _ in runs]
    of_keys = [messages for _, _, messages in runs]
    yield (
        _INSERT_ORDERED_RUNS,
        {
            "shard_id": request.shard_id,
            "now": at,
            "subscription_ids": [claimant.subscription_id for claimant in claimants],
            "attempt_ids": [attempt_id for _, attempt_id, _ in runs],
            "ordering_keys": [messages[0].ordering_key for messages in of_keys],
            "ack_deadlines": ack_deadlines(claimants, at),
            "exactly_once": [claimant.exactly_once for claimant in claimants],
            "seqs": list(map(multirange, of_keys)),
            "counts": list(map(len, of_keys)),
            "first_publish_times": [messages[0].publish_time for messages in of_keys],
            "last_publish_times": [messages[-1].publish_time for messages in of_keys],
        },
    )
