"""By a filter a subscription is purged of what matches, wherever it has it, step by step (G2)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.backlog import locked_backlog
from broker.core.backlog.outcome import Outcome
from broker.core.log.log_walk import LogWalk
from broker.core.log.messages import append_messages, encode_messages
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.purge.rows import Purged, PurgeStep, purge_matching, read_oldest_backlog
from broker.model.errors import FailedPrecondition
from broker.model.journal import NOBODY
from broker.model.message import NewMessage
from broker.model.timestamps import END_OF_TIME
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts

PURGED = Outcome.PURGED


async def _publish(log: Log, *data: str, key: str = "") -> None:
    """Capitals have an attribute."""
    messages = [
        NewMessage(data=text.encode(), attributes={"big": "1"} if text.isupper() else {}, ordering_key=key)
        for text in data
    ]
    async with log.session() as session:
        requests = [encode_messages(messages)]
        await append_messages(session, shard_id=log.shard_id, requests=requests, now=log.start)


async def _meant(log: Log, end: int, until: datetime = END_OF_TIME) -> LogWalk:
    owner = log.subscription.subscription_id
    async with log.session() as session:
        starts = await read_oldest_backlog(session, subscription_id=owner, shard_ids=[log.shard_id])
    return LogWalk(
        subscription_id=owner,
        starts=starts or {log.shard_id: log.start},
        ends={log.shard_id: end},
        until=until,
        filter_path='$."big" == "1"',
    )


async def _step(log: Log, meant: LogWalk, progress: dict[str, object], most: int) -> Purged:
    after = meant.next_position(progress)
    assert after is not None
    step = PurgeStep(meant=meant, after=after, max_messages=most, author=NOBODY, now=log.start + SECOND)
    async with log.session() as session:
        await session.run((BEGIN, {}))
        done = await purge_matching(session, step, log.attempt_ids)
        await session.run((COMMIT, {}))
    return done


async def _purge(log: Log, end: int, *, most: int = 500, until: datetime = END_OF_TIME) -> Sequence[Outcome]:
    """Step by step, to the end."""
    meant, outcomes = await _meant(log, end, until), list[Outcome]()
    progress: dict[str, object] = {}
    while True:
        done = await _step(log, meant, progress, most)
        outcomes += done.outcomes.values()
        if done.rest is None:
            return outcomes
        at = done.rest
        progress = {"shard": at.shard_id, "time": at.publish_time.isoformat(), "seq": at.seq}


@pytest.mark.parametrize("most", [1, 2, 500])
async def test_what_matches_goes_and_the_rest_is_delivered_once(
    log: Log, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also where the cursor has far to go."""
    monkeypatch.setattr(locked_backlog, "MAX_PASSED", 3)
    await _publish(log, *"aBcD")
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery, [0])
    await _publish(log, *"eFghiJkL")
    assert await _purge(log, 11, most=most) == [PURGED] * 4
    early = await log.pull(now=log.start + SECOND)
    await log.acknowledge_many(*early)
    late = await log.pull(now=log.start + 2 * ACK_DEADLINE)
    assert sorted(text for each in (*early, *late) for text in texts([each])) == ["L", *"ceghik"]
    assert await log.acknowledge(delivery, [1]) == {1}, "an ack of what is purged comes too late"


async def test_the_order_of_a_key_is_kept(log: Log) -> None:
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await _publish(log, *"aBcDeF", key="k")
    [delivery] = await log.pull(2, ordered=True)
    await log.nack(delivery)
    assert await _purge(log, 6, most=1) == [PURGED] * 3
    found: list[str] = []
    while deliveries := await log.pull(ordered=True, now=log.start + SECOND):
        found += texts(deliveries)
        acks = {log.name(each): set(range(len(each.messages))) for each in deliveries}
        async with log.session() as session:
            where = {"shard_id": log.shard_id, "acks": acks, "exactly_once": (), "now": log.start}
            await acknowledge_in_order(session, **where)
    assert found == ["a", "c", "e"]


async def test_dead_letters_and_what_is_acked_or_too_young_stay(log: Log) -> None:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("GIVEN UP")
    await _publish(log, "A")
    await log.acknowledge_many(*await log.pull())
    await _publish(log, "B")
    assert await _purge(log, 3, until=log.start) == []
    assert await _purge(log, 3) == [PURGED]
    assert await log.pull() == []
    assert await dead_letters.dead.pull_texts() == ["GIVEN UP"]


async def test_a_subscription_that_is_detached_has_nothing_to_purge(log: Log) -> None:
    await _publish(log, "A")
    meant = await _meant(log, 1)
    await log.execute("DELETE FROM cursors")
    with pytest.raises(FailedPrecondition, match="detached"):
        await _step(log, meant, {}, 1)
