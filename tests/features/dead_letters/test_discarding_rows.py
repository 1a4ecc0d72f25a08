"""What is discarded is never delivered again, wherever it lies; what is beside it is (G2)."""

import asyncio
from collections.abc import Collection

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.backlog import locked_backlog
from broker.core.backlog.outcome import Outcome
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN
from broker.features.dead_letters.discarding import rows as discard
from broker.model.delivery import Delivery
from broker.model.errors import Aborted
from broker.model.journal import NOBODY
from tests.fixtures.dead_letters import DeadLetters, make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.interleavings.steps import leave_piles_unlocked, open_transaction, paused, until_waiting

DISCARDED, SETTLED = Outcome.DISCARDED, Outcome.ALREADY_SETTLED


@pytest.fixture
async def dead_letters(log: Log) -> DeadLetters:
    return await make_dead_letters(log)


@pytest.fixture
async def ordered(log: Log) -> DeadLetters:
    return await make_dead_letters(log, ordered=True)


async def _discard(
    log: Log,
    *seqs: int,
    shard_id: int | None = None,
    consumable: Collection[int] = (),
    connection: HotConnection | None = None,
) -> list[Outcome]:
    """Of these messages, of the log itself or of another shard."""
    ids = [(shard_id or log.shard_id, seq) for seq in seqs]
    asked = discard.Discard(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        ids=ids,
        consumable=consumable,
        author=NOBODY,
        now=log.start + SECOND,
    )
    if connection is not None:
        done = await discard.discard(connection, asked, log.attempt_ids)
    else:
        async with open_transaction(log.database) as session:
            done = await discard.discard(session, asked, log.attempt_ids)
    return [done.outcomes[id_] for id_ in ids]


async def _ack_in_order(log: Log, delivery: Delivery, *ordinals: int) -> None:
    async with log.session() as session:
        acks = {log.name(delivery): set(ordinals)}
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=log.start)


def _pile(dead_letters: DeadLetters) -> set[int]:
    return {dead_letters.dead.subscription.subscription_id}


async def test_of_what_is_out_the_rest_stays_out_and_is_acked_as_it_was(log: Log) -> None:
    await log.publish(*"abcde")
    [delivery] = await log.pull()
    assert await _discard(log, 2, 4) == [DISCARDED] * 2
    assert await log.pull(now=log.start + 2 * SECOND) == []
    assert await log.acknowledge(delivery, [0, 1]) == {1}, "an ack of what is discarded comes too late"
    assert await log.pull_texts(now=log.start + 2 * ACK_DEADLINE) == ["c", "e"]
    assert await _discard(log, 1, 2, 3, 5) == [SETTLED, SETTLED, DISCARDED, DISCARDED]
    assert await log.attempts() == []


async def test_what_came_back_and_what_waits_in_the_log_is_not_delivered(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what stands before it is, once; what stands too far behind is got at step by step."""
    monkeypatch.setattr(locked_backlog, "MAX_PASSED", 3)
    await log.publish(*"abcdefgh")
    [delivery] = await log.pull(2)
    await log.nack(delivery)
    assert await _discard(log, 2, 4, 9, 8) == [DISCARDED, DISCARDED, Outcome.UNKNOWN, Outcome.WAITING]
    assert await _discard(log, 8) == [DISCARDED]
    assert sorted(await log.pull_texts(now=log.start + SECOND)) == list("acefg")
    assert await log.pull(now=log.start + SECOND) == []


async def test_of_a_key_the_poison_goes_and_acks_behind_it_count(ordered: DeadLetters) -> None:
    log = ordered.log
    await log.publish(*"abcde", key="k")
    [delivery] = await log.pull(4, ordered=True)
    await _ack_in_order(log, delivery, 1, 3)
    assert await _discard(log, 1) == [DISCARDED]
    assert await log.pull(ordered=True, now=log.start + 2 * SECOND) == [], "c is with somebody"
    again = await log.pull(ordered=True, now=log.start + 2 * ACK_DEADLINE)
    assert texts(again) == ["c", "d"]
    assert await _discard(log, 3, 4, 5) == [DISCARDED] * 3
    await log.publish("f", key="k")
    assert texts(await log.pull(ordered=True, now=log.start + 2 * SECOND)) == ["f"], "nothing of the key is out"


async def test_of_a_key_what_waits_goes_and_the_order_stays(ordered: DeadLetters) -> None:
    log = ordered.log
    await log.publish(*"abcdef", key="k")
    delivery: Delivery | None
    [delivery] = await log.pull(1, ordered=True)
    assert await _discard(log, 3, 5) == [DISCARDED] * 2
    found = []
    while delivery is not None:
        found += texts([delivery])
        await _ack_in_order(log, delivery, *range(len(delivery.messages)))
        delivery = next(iter(await log.pull(ordered=True, now=log.start + SECOND)), None)
    assert found == ["a", "b", "d", "f"]


@pytest.mark.parametrize("key", ["", "k"])
async def test_dead_letters_are_discarded_by_either_id_also_when_they_are_out(
    ordered: DeadLetters, key: str
) -> None:
    log, dead = ordered.log, ordered.dead
    await ordered.give_up(*"abcd", key=key)
    [delivery] = await dead.pull(2, ordered=True)
    assert await _discard(log, 1, consumable=()) == [Outcome.LEFT_ALONE]
    assert await _discard(log, 1, 3, consumable=_pile(ordered)) == [DISCARDED] * 2
    assert await _discard(log, 4, shard_id=dead.shard_id, consumable=_pile(ordered)) == [DISCARDED]
    assert await _discard(log, 9, shard_id=dead.shard_id, consumable=_pile(ordered)) == [Outcome.UNKNOWN]
    assert texts([delivery]) == ["a", "b"]
    left = await dead.pull(ordered=True, now=log.start + 2 * ACK_DEADLINE)
    assert texts(left) == ["b"]
    assert await log.pull(ordered=True) == []
    assert await _discard(dead, 2) == [DISCARDED], "and of the subscription of the dead-letter topic itself"
    assert await _discard(log, 1, 2, consumable=_pile(ordered)) == [SETTLED] * 2


async def test_what_the_subscription_does_not_have_is_not_told_of(dead_letters: DeadLetters) -> None:
    """That there is such a message on another topic is none of its business."""
    await dead_letters.dead.publish("a")
    assert await _discard(dead_letters.log, 1, shard_id=dead_letters.dead.shard_id) == [Outcome.UNKNOWN]
    assert await dead_letters.dead.pull_texts() == ["a"]


@pytest.mark.parametrize("key", ["", "k"])
async def test_what_is_about_to_be_given_up_makes_no_dead_letter(ordered: DeadLetters, key: str) -> None:
    log = ordered.log
    await log.publish(*"ab", key=key)
    [delivery] = await log.pull(ordered=True)
    exhausted = {"status": "exhausted", "next_delivery_at": "infinity"}
    assignments = ", ".join(f"{name} = '{value}'" for name, value in exhausted.items())
    await log.execute(f"UPDATE delivery_attempts SET {assignments}")
    assert len(delivery.messages) == 2
    assert await _discard(log, 2) == [Outcome.WAITING if key else DISCARDED]
    assert await _discard(log, 1) == [DISCARDED]
    assert await _discard(log, 2) == [DISCARDED if key else SETTLED]
    await ordered.forward(log.start)
    assert await ordered.dead.pull(ordered=True) == []


@pytest.mark.parametrize("rule", [True, False])
async def test_what_is_given_up_meanwhile_is_looked_for_among_the_dead_letters(
    dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    """Without the second look it would be taken for discarded, and lie in the dead-letter topic."""
    log = dead_letters.log
    await log.publish("a")
    [delivery] = await log.pull()
    await log.nack(delivery)
    if not rule:
        monkeypatch.setattr(discard, "_names", lambda found: set())
    async with paused(log.database, before="FOR UPDATE OF c") as session:
        await session.run((BEGIN, {}))
        task = asyncio.create_task(_discard(log, 1, consumable=_pile(dead_letters), connection=session))
        await session.reached.wait()
        assert await dead_letters.forward(log.start) == 1
        session.go.set()
        if rule:
            with pytest.raises(Aborted):
                await task
        else:
            assert await task == [DISCARDED], "and it is not"
        await session.close()
    if rule:
        assert await _discard(log, 1, consumable=_pile(dead_letters)) == [DISCARDED]
    assert (await dead_letters.dead.pull_texts() == []) is rule


@pytest.mark.parametrize("rule", [True, False])
async def test_a_claim_under_way_is_waited_for(log: Log, monkeypatch: pytest.MonkeyPatch, rule: bool) -> None:
    """Without the cursor's lock what it hands out is taken for what waits, and is handed out again."""
    await log.publish("a", "b")
    if not rule:
        leave_piles_unlocked(monkeypatch)
    async with paused(log.database, before="COMMIT") as session:
        claim = asyncio.create_task(log.claim(1, connection=session))
        await session.reached.wait()
        task = asyncio.create_task(_discard(log, 2))
        await until_waiting(log.database)
        session.go.set()
        [[delivery]] = (await claim).deliveries
        assert await task == [DISCARDED]
    assert texts([delivery]) == ["a"]
    later = log.start + 2 * ACK_DEADLINE
    assert (sorted(await log.pull_texts(now=later)) == ["a"]) is rule


async def test_what_nobody_subscribes_to_is_discarded_once(dead_letters: DeadLetters) -> None:
    """Of two at once the second one waits, and then sees what the first has written down."""
    log = dead_letters.log
    await dead_letters.give_up("a")
    await log.execute(
        f"DELETE FROM cursors WHERE subscription_id = {dead_letters.dead.subscription.subscription_id}"
    )
    async with open_transaction(log.database) as first:
        assert await _discard(log, 1, connection=first) == [DISCARDED]
        second = asyncio.create_task(_discard(log, 1))
        await until_waiting(log.database)
    assert await second == [SETTLED]
    assert await log.rows("SELECT resolution FROM dead_letters") == [("discarded",)]
    assert await dead_letters.redrive() == []
