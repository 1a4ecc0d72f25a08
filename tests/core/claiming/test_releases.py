"""What was claimed and reached nobody is due at once, as if it had not been claimed."""

from typing import Any

import pytest

from broker.core.acking.delivery_attempts import modify_ack_deadline, modify_ordered_deadline
from broker.model.deadline_change import DeadlineChange
from broker.model.delivery import Delivery
from tests.fixtures.log import Log


async def release(log: Log, delivery: Delivery, ordinals: frozenset[int]) -> None:
    changes = [DeadlineChange(log.name(delivery), ordinals, log.start, "released")]
    where: dict[str, Any] = {"shard_id": log.shard_id, "changes": changes, "jitter": 0.0, "now": log.start}
    async with log.session() as session:
        if delivery.ordered:
            await modify_ordered_deadline(session, **where)
        else:
            new_parts = list(log.attempt_ids.take_parts(1, now=log.start))
            await modify_ack_deadline(session, **where, new_parts=new_parts)


@pytest.mark.parametrize("key", ["", "k"])
async def test_a_release_that_is_written_twice_counts_once(log: Log, key: str) -> None:
    """Its answer was lost, so it is sent again."""
    await log.publish("a", key=key)
    [delivery] = await log.pull(ordered=True, max_run=1)
    for _ in range(3):
        await release(log, delivery, frozenset({0}))
    [again] = await log.pull(ordered=True, max_run=1)
    assert again.attempt_number == 1


@pytest.mark.parametrize("key", ["", "k"])
async def test_a_nack_before_a_release_counts(log: Log, key: str) -> None:
    await log.publish("a", key=key)
    [first] = await log.pull(ordered=True, max_run=1)
    await log.nack(first)
    [second] = await log.pull(ordered=True, max_run=1)
    await release(log, second, frozenset({0}))
    [third] = await log.pull(ordered=True, max_run=1)
    assert (second.attempt_number, third.attempt_number) == (2, 2)


async def test_a_part_of_an_attempt_is_released(log: Log) -> None:
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    await release(log, delivery, frozenset({1}))
    [again] = await log.pull()
    assert [m.data for m in again.messages] == [b"b"]
    assert again.attempt_number == 1
    await log.nack(delivery, [0, 2])
    [others] = await log.pull()
    assert others.attempt_number == 2


async def test_what_waits_of_a_key_waits_behind_what_was_released(log: Log) -> None:
    await log.publish("a", "b", key="k")
    [first] = await log.pull(ordered=True, max_run=1)
    await release(log, first, frozenset({0}))
    [again] = await log.pull(ordered=True, max_run=1)
    await log.publish("c", key="k")
    assert [m.data for m in again.messages] == [b"a"]
    assert await log.pull(ordered=True, max_run=1) == []
