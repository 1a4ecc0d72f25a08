"""Letters of release 0.1.0, of which only attributes say whose they are, come back as new messages (G2)."""

import json
from collections import Counter
from typing import Any

import pytest

from broker.domain.errors import FailedPrecondition
from broker.domain.journal import NOBODY
from broker.domain.log_page import LogPosition
from broker.domain.message import NewMessage
from broker.domain.redrive import EVER, Chosen, Outcome, Unrecorded
from broker.store.driver.statements import BEGIN, COMMIT
from broker.store.log import piles
from broker.store.log.messages import append_messages, encode_messages
from broker.store.log.unrecorded import UnrecordedDone, UnrecordedStep, redrive_unrecorded
from broker.store.resources.private_shards import find_private_shard
from tests.fixtures.dead_letters import Letters, make_letters
from tests.fixtures.log import Log, add_subscription, texts


@pytest.fixture
async def letters(log: Log) -> Letters:
    return await make_letters(log)


async def _publish(letters: Letters, *data: str, **attributes: str) -> None:
    """As release 0.1.0 published dead letters."""
    source = json.loads(_of(letters).source_json())
    batch = encode_messages([NewMessage(data=text.encode(), attributes=source | attributes) for text in data])
    async with letters.dead.session() as session:
        await append_messages(session, shard_id=letters.dead.shard_id, requests=[batch], now=letters.log.start)


def _of(letters: Letters, private_shard: int = 0) -> Unrecorded:
    return Unrecorded(
        subscription=letters.log.subscription.name,
        shard_ids=[letters.dead.shard_id],
        until=letters.log.start,
        private_shard=private_shard,
    )


async def _private(log: Log) -> int:
    async with log.database.transaction() as connection:
        shard_id, _ = await find_private_shard(connection, subscription=log.subscription, now=log.start)
    return shard_id


async def _step(letters: Letters, after: LogPosition | None = None, **options: Any) -> UnrecordedDone:
    log, dead = letters.log, letters.dead
    chosen = Chosen(subscription_id=log.subscription.subscription_id, since=EVER, until=log.start)
    defaults = {"max_messages": 500, "consumable": {dead.subscription.subscription_id}, "own_paths": (None, None)}
    step = UnrecordedStep(
        chosen=chosen,
        letters=_of(letters, await _private(log)),
        after=after or LogPosition(dead.shard_id, EVER, -1),
        author=NOBODY,
        now=log.start,
        **{**defaults, **options},
    )
    async with log.session() as session:
        await session.run((BEGIN, {}))
        done = await redrive_unrecorded(session, step, log.attempt_ids)
        await session.run((COMMIT, {}))
    return done


async def _all(letters: Letters, **options: Any) -> list[Outcome]:
    outcomes: list[Outcome] = []
    after: LogPosition | None = LogPosition(letters.dead.shard_id, EVER, -1)
    while after is not None:
        done = await _step(letters, after, **options)
        outcomes += done.outcomes.values()
        after = done.rest
    return outcomes


async def _came_back(log: Log) -> list[str]:
    """What lies in its own shard."""
    shard_id = await _private(log)
    rows = await log.rows(f"SELECT body FROM messages WHERE shard_id = {shard_id} ORDER BY seq")
    return [bytes(row[0]).decode() for row in rows]


async def test_step_by_step_each_comes_back_once_and_in_order(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the cursor of the pile has far to go."""
    monkeypatch.setattr(piles, "MAX_PASSED", 2)
    await _publish(letters, "a", "b")
    await letters.dead.publish("nobody's", "nor this")
    await _publish(letters, "c", "d", "e")
    assert await _all(letters, max_messages=2) == [Outcome.REDRIVEN_AS_NEW] * 5
    assert await _came_back(letters.log) == [*"abcde"]
    assert Counter(await letters.dead.pull_texts()) == Counter(["nobody's", "nor this"])
    assert await _all(letters) == []


async def test_what_lies_also_where_the_caller_may_not_consume_is_left_alone(letters: Letters) -> None:
    """From there it could come back once more."""
    dead = letters.dead
    async with dead.database.transaction() as connection:
        made = await add_subscription(connection, dead.topic, "theirs", letters.log.start)
    await _publish(letters, "a")
    other = made.subscription_id
    assert await _all(letters) == [Outcome.LEFT_ALONE]
    both = {other, dead.subscription.subscription_id}
    assert await _all(letters, consumable=()) == []
    assert await _all(letters, consumable=both) == [Outcome.REDRIVEN_AS_NEW]
    assert await dead.pull() == await dead.pull(subscription_id=other) == []


async def test_what_the_filter_of_the_subscription_leaves_out_or_is_recorded_stays(letters: Letters) -> None:
    """A filter is asked of what comes: without the attributes of a letter."""
    await letters.give_up("recorded")
    await _publish(letters, "of the filter", n="1")
    await _publish(letters, "not", n="2")
    await _publish(letters, "newer", n="1", **{"broker-source-message-id": "7"})
    assert await _all(letters, own_paths=('$."n" == "1"', None)) == [Outcome.REDRIVEN_AS_NEW]
    assert await _all(letters, own_paths=('exists($."CloudPubSubDeadLetterSourceSubscription")', None)) == []
    assert await _came_back(letters.log) == ["of the filter"]


async def test_one_that_is_out_is_left_alone_and_one_given_back_comes(letters: Letters) -> None:
    await _publish(letters, *"abc")
    [delivery] = await letters.dead.pull(2)
    await letters.dead.nack(delivery, [1])
    assert await _all(letters) == [Outcome.OUTSTANDING, *[Outcome.REDRIVEN_AS_NEW] * 2]
    assert await _came_back(letters.log) == ["b", "c"]
    await letters.dead.acknowledge(delivery, [0])
    assert await _all(letters) == [], "it was dealt with"


async def test_nothing_goes_once_the_subscription_is_detached(letters: Letters) -> None:
    await _publish(letters, "a")
    shard_id = await _private(letters.log)
    await letters.log.execute(f"DELETE FROM cursors WHERE shard_id = {shard_id}")
    with pytest.raises(FailedPrecondition):
        await _step(letters)
    assert texts(await letters.dead.pull()) == ["a"]
