"""The delay of a retry policy is reckoned in two places: a claim's is Python, a nack's is SQL (A4)."""

from datetime import timedelta
from typing import Any

import pytest

from broker.core.acking.delivery_attempts import modify_ack_deadline, modify_ordered_deadline
from broker.model.deadline_change import DeadlineChange
from broker.model.delivery import Delivery
from broker.model.retry_policy import RetryPolicy
from tests.fixtures.log import Log

_SECONDS = [0.0, 0.001, 0.25, 1.0, 1.5, 7.0, 10.0, 33.333, 599.999, 600.0]
POLICIES = [
    RetryPolicy(minimum_backoff=timedelta(seconds=least), maximum_backoff=timedelta(seconds=most))
    for least in _SECONDS
    for most in _SECONDS
    if least <= most
]
FAILURES = [1, 2, 3, 5, 10, 11, 20, 33, 34, 100, 1_000]
JITTER = 0.0625
_MICROSECOND = timedelta(microseconds=1)


async def _nack(log: Log, deliveries: list[Delivery], failures: int) -> list[timedelta]:
    """The delay of one message under each policy once it has failed so often, as PostgreSQL reckons it."""
    again = "status = 'delivering', failure = NULL, retry_at = NULL"
    await log.execute(f"UPDATE delivery_attempts SET {again}, attempt_number = {failures}")
    await log.execute(
        f"UPDATE delivery_attempts SET out_count = 1, attempt_numbers = '{{{failures}}}' WHERE waiting IS NOT NULL"
    )
    changes = [
        DeadlineChange(log.name(delivery), frozenset({0}), log.start, "nacked", policy)
        for delivery, policy in zip(deliveries, POLICIES, strict=True)
    ]
    where: dict[str, Any] = {"shard_id": log.shard_id, "changes": changes, "jitter": JITTER, "now": log.start}
    async with log.session() as session:
        if deliveries[0].ordered:
            assert await modify_ordered_deadline(session, **where) == {}
        else:
            new_parts = list(log.attempt_ids.take_parts(len(changes), now=log.start))
            assert await modify_ack_deadline(session, **where, new_parts=new_parts) == {}
    rows = await log.rows("SELECT next_delivery_at FROM delivery_attempts ORDER BY attempt_id")
    return [next_delivery_at - log.start for (next_delivery_at,) in rows]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_nack_waits_as_long_as_a_deadline_that_passed(log: Log, *, ordered: bool) -> None:
    for number in range(len(POLICIES)):
        await log.publish("x", key=str(number) if ordered else "")
    claimed = await log.claim(*[1] * len(POLICIES), ordered=ordered)
    deliveries = [delivery for [delivery] in claimed.deliveries]
    for failures in FAILURES:
        delays = await _nack(log, deliveries, failures)
        expected = [policy.delay(failures) * (1 + JITTER) for policy in POLICIES]
        # PostgreSQL reckons in binary fractions, Python in microseconds.
        different = [
            (policy, sql, python)
            for policy, sql, python in zip(POLICIES, delays, expected, strict=True)
            if abs(sql - python) > _MICROSECOND
        ]
        assert different == [], failures
