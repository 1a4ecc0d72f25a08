"""Acks and deadlines of exactly-once subscriptions."""

from datetime import datetime
from typing import Any

from broker.core.acking.delivery_attempts import acknowledge_exactly_once, modify_ack_deadline
from broker.core.retention.retention import delete_unwanted
from broker.model.deadline_change import DeadlineChange
from broker.model.delivery import Delivery
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log


async def pull(log: Log, **options: Any) -> Delivery:
    [delivery] = await log.pull(exactly_once=True, **options)
    return delivery


async def acknowledge(log: Log, delivery: Delivery, *ordinals: int, now: datetime | None = None) -> set[int]:
    """Returns the ordinals that were refused."""
    name = log.name(delivery)
    async with log.session() as session:
        refused = await acknowledge_exactly_once(
            session, shard_id=log.shard_id, acks={name: set(ordinals)}, now=now or log.start
        )
    return refused.get(name, set())


async def modify(log: Log, delivery: Delivery, ordinal: int, *, now: datetime, seconds: int) -> set[int]:
    name = log.name(delivery)
    due = now + seconds * SECOND
    change = DeadlineChange(
        name, frozenset([ordinal]), due, "delivering" if seconds else "nacked", exactly_once=True
    )
    parts = list(log.attempt_ids.take_parts(1, now=now))
    async with log.session() as session:
        refused = await modify_ack_deadline(
            session, shard_id=log.shard_id, changes=[change], new_parts=parts, jitter=0.0, now=now
        )
    return refused.get(name, set())


async def test_a_repeated_ack_succeeds(log: Log) -> None:
    await log.publish("a", "b")
    delivery = await pull(log)
    assert await acknowledge(log, delivery, 0) == set()
    assert await acknowledge(log, delivery, 0, 1) == set()
    assert await log.pull(now=log.start + ACK_DEADLINE) == []


async def test_an_ack_after_the_deadline_is_refused_even_before_redelivery(log: Log) -> None:
    await log.publish("a")
    delivery = await pull(log)
    assert await acknowledge(log, delivery, 0, now=log.start + ACK_DEADLINE) == {0}
    assert await log.pull_texts(now=log.start + ACK_DEADLINE) == ["a"]


async def test_only_the_latest_delivery_can_be_acked(log: Log) -> None:
    await log.publish("a")
    first = await pull(log)
    second = await pull(log, now=log.start + ACK_DEADLINE)
    now = log.start + ACK_DEADLINE
    assert await acknowledge(log, first, 0, now=now) == {0}
    assert await acknowledge(log, second, 0, now=now) == set()


async def test_good_ids_beside_stale_ones_are_acked(log: Log) -> None:
    await log.publish("a", "b")
    delivery = await pull(log)
    assert await modify(log, delivery, 1, now=log.start, seconds=60) == set()
    later = log.start + ACK_DEADLINE
    assert await acknowledge(log, delivery, 0, 1, now=later) == {0}
    assert await log.pull_texts(now=log.start + 100 * SECOND) == ["a"]


async def test_an_expired_or_acked_message_takes_no_new_deadline(log: Log) -> None:
    await log.publish("a", "b")
    delivery = await pull(log)
    await acknowledge(log, delivery, 0)
    assert await modify(log, delivery, 0, now=log.start, seconds=60) == {0}
    assert await modify(log, delivery, 1, now=log.start + ACK_DEADLINE, seconds=60) == {1}
    assert await modify(log, delivery, 1, now=log.start + ACK_DEADLINE, seconds=0) == {1}


async def test_a_nacked_message_cannot_be_acked_any_more(log: Log) -> None:
    await log.publish("a")
    delivery = await pull(log)
    assert await modify(log, delivery, 0, now=log.start, seconds=0) == set()
    assert await acknowledge(log, delivery, 0) == {0}


async def test_what_is_kept_of_acked_messages_goes_at_their_deadline(log: Log) -> None:
    await log.publish("a", "b")
    delivery = await pull(log, max_messages=1)
    await acknowledge(log, delivery, 0)
    assert len(await log.attempts()) == 1
    later = log.start + ACK_DEADLINE
    assert await log.pull_texts(1, now=later) == ["b"]
    assert len(await log.attempts()) == 1, "a claim deletes it"
    other = await pull(log, now=later + ACK_DEADLINE)
    await acknowledge(log, other, 0, now=later + ACK_DEADLINE)
    async with log.database.connection() as connection:
        await delete_unwanted(connection, database=log.database, now=later + 3 * ACK_DEADLINE)
    assert await log.attempts() == [], "the janitor deletes it where nobody pulls"
