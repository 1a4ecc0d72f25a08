"""The rules of acks and deadline changes under concurrency (docs/claim.md)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from broker.core.acking import delivery_attempts, modify_ack_deadline_citus
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import hot_statement
from broker.model.delivery import Delivery
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import changed, open_transaction, until_waiting

# What looks right and is not: two branches that each look at the row as it was before the wait.
_DELETE_IF_EMPTY_ELSE_UPDATE = hot_statement(
    "delete_if_empty_else_update",
    """
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[], masks text[]
WITH asked AS (
    SELECT a.subscription_id, a.attempt_id, a.mask::varbit AS mask
    FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::text[])
        AS a (subscription_id, attempt_id, mask)
),
finished AS (
    DELETE FROM delivery_attempts AS d USING asked AS a
    WHERE d.shard_id = %(shard_id)s AND d.attempt_id = a.attempt_id AND bit_count(d.open & ~a.mask) = 0
    RETURNING d.subscription_id, d.attempt_id, d.open
),
reduced AS (
    UPDATE delivery_attempts AS d SET open = d.open & ~a.mask FROM asked AS a
    WHERE d.shard_id = %(shard_id)s AND d.attempt_id = a.attempt_id AND bit_count(d.open & ~a.mask) > 0
    RETURNING d.subscription_id, d.attempt_id, d.open
)
SELECT subscription_id, attempt_id, open::text FROM finished
UNION ALL
SELECT subscription_id, attempt_id, open::text FROM reduced
""",
)


async def concurrent_acks_of_one_response_all_count(log: Log) -> None:
    await log.publish("a", "b")
    [delivery] = await log.pull()
    async with open_transaction(log.database) as first:
        await log.acknowledge(delivery, [0], connection=first)
        second = asyncio.create_task(log.acknowledge(delivery, [1]))
        await until_waiting(log.database)
    await second
    assert await log.attempts() == []


async def test_concurrent_acks_of_one_response_all_count(log: Log) -> None:
    await concurrent_acks_of_one_response_all_count(log)


async def test_one_would_be_lost_with_delete_if_empty_else_update(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_attempts, "_ACKNOWLEDGE", _DELETE_IF_EMPTY_ELSE_UPDATE)
    with pytest.raises(AssertionError):
        await concurrent_acks_of_one_response_all_count(log)


async def acks_lock_attempts_in_one_order(log: Log) -> None:
    await log.publish("a", "b", "c")
    first, middle, last = [(await log.pull(1))[0] for _ in range(3)]
    async with open_transaction(log.database) as holding:
        await log.modify_ack_deadline(middle, None, log.start + SECOND, connection=holding)
        ack = asyncio.create_task(log.acknowledge_many(first, middle, last))
        await until_waiting(log.database, 1)
        # The same three, named in the other order.
        change = asyncio.create_task(log.modify_many(log.start + SECOND, last, middle, first))
        await until_waiting(log.database, 2)
    outcomes = await asyncio.gather(ack, change, return_exceptions=True)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


async def test_acks_and_deadline_changes_lock_attempts_in_one_order(log: Log) -> None:
    await acks_lock_attempts_in_one_order(log)


async def test_they_would_deadlock_if_one_of_them_went_backwards(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = changed(delivery_attempts._ACKNOWLEDGE, "d.attempt_id, d.part\n", "d.attempt_id DESC, d.part\n")
    monkeypatch.setattr(delivery_attempts, "_ACKNOWLEDGE", backwards)
    with pytest.raises(AssertionError, match="Aborted"):
        await acks_lock_attempts_in_one_order(log)


@asynccontextmanager
async def _splitting(log: Log, delivery: object) -> AsyncIterator[HotConnection]:
    async with open_transaction(log.database) as session:
        await log.modify_ack_deadline(delivery, [0], log.start + SECOND, connection=session)  # type: ignore[arg-type]
        yield session


async def test_an_ack_that_waited_for_a_split_says_what_it_missed_and_finds_it_when_it_looks_again(
    log: Log,
) -> None:
    await log.publish("a", "b")
    [delivery] = await log.pull()
    async with _splitting(log, delivery):
        ack = asyncio.create_task(log.acknowledge(delivery, [0]))
        await until_waiting(log.database)
    # Message 0 has moved to a part that the waiting statement's snapshot did not have.
    assert await ack == {0}
    assert await log.acknowledge(delivery, [0]) == set()
    assert [bits for *_, bits in await log.attempts()] == ["01"]


_TOUCHES: dict[str, Callable[[Log, Delivery], Awaitable[set[int]]]] = {
    "_ACKNOWLEDGE": lambda log, delivery: log.acknowledge(delivery, [1]),
    "_ACKNOWLEDGE_EXACTLY_ONCE": lambda log, delivery: log.acknowledge_exactly_once(delivery, [1]),
    "_MODIFY_ACK_DEADLINE": lambda log, delivery: log.modify_ack_deadline(delivery, [1], log.start + 2 * SECOND),
}


@asynccontextmanager
async def _one_part_held(log: Log) -> AsyncIterator[Delivery]:
    """Another session holds the part that message 0 has moved to."""
    await log.publish("a", "b", "c")
    [delivery] = await log.pull(exactly_once=True)
    await log.modify_ack_deadline(delivery, [0], log.start + SECOND)
    async with open_transaction(log.database) as holding:
        await log.modify_ack_deadline(delivery, [0], log.start + 2 * SECOND, connection=holding)
        yield delivery


@pytest.mark.parametrize("statement", _TOUCHES)
async def test_what_asks_for_a_message_waits_for_nobody_who_holds_other_parts_of_its_attempt(
    log: Log, statement: str
) -> None:
    async with _one_part_held(log) as delivery:
        assert await _TOUCHES[statement](log, delivery) == set()


@pytest.mark.parametrize("statement", _TOUCHES)
async def test_it_would_wait_if_it_locked_parts_without_the_message(
    log: Log, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    forms = [(delivery_attempts, statement)]
    if statement == "_MODIFY_ACK_DEADLINE":
        forms.append((modify_ack_deadline_citus, "_MODIFY_WHOLE_ROWS"))  # where tables lie on nodes
    for module, name in forms:
        locks_all = changed(getattr(module, name), "& asked.mask) > 0", "& asked.mask) >= 0")
        monkeypatch.setattr(module, name, locks_all)
    async with _one_part_held(log) as delivery:
        asking = asyncio.create_task(_TOUCHES[statement](log, delivery))
        await until_waiting(log.database)
    await asking


async def _in_parts(log: Log) -> Delivery:
    """A response of three messages that were extended one by one."""
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    for ordinal in range(3):
        await log.modify_ack_deadline(delivery, [ordinal], log.in_a_cell + ordinal / 10 * SECOND)
    return delivery


async def _merge(log: Log, delivery: Delivery, connection: HotConnection | None = None) -> None:
    await log.merge_parts(delivery, now=log.in_a_cell - 50 * SECOND, connection=connection)


async def test_an_ack_that_waited_for_a_part_that_was_merged_finds_its_message_when_it_looks_again(
    log: Log,
) -> None:
    delivery = await _in_parts(log)
    async with open_transaction(log.database) as merging:
        await _merge(log, delivery, merging)
        ack = asyncio.create_task(log.acknowledge(delivery, [1]))
        await until_waiting(log.database)
    assert await ack == {1}
    assert await log.acknowledge(delivery, [1]) == set()
    assert [bits for *_, bits in await log.attempts()] == ["101"]


async def an_ack_beside_a_merge_counts(log: Log) -> None:
    delivery = await _in_parts(log)
    async with open_transaction(log.database) as acking:
        await log.acknowledge(delivery, [1], connection=acking)
        await asyncio.wait_for(_merge(log, delivery), 5)
    assert [bits for *_, bits in await log.attempts()] == ["101"]


async def test_an_ack_beside_a_merge_counts_and_the_merge_does_not_wait_for_it(log: Log) -> None:
    await an_ack_beside_a_merge_counts(log)


async def test_the_message_would_come_back_if_parts_were_merged_without_their_locks(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = await _in_parts(log)
    unlocked = changed(delivery_attempts._MERGE_PARTS, "FOR UPDATE OF d SKIP LOCKED", "")
    monkeypatch.setattr(delivery_attempts, "_MERGE_PARTS", unlocked)
    async with open_transaction(log.database) as acking:
        await log.acknowledge(delivery, [1], connection=acking)
        merge = asyncio.create_task(_merge(log, delivery))
        await until_waiting(log.database)
    await merge
    assert [bits for *_, bits in await log.attempts()] == ["111"]
