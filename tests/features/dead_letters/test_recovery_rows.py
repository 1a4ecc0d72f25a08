"""What pushes failed for comes once more, and so does what another endpoint was given (G2)."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.acking.delivery_attempts import acknowledge, acknowledge_in_order
from broker.core.backlog.outcome import Outcome
from broker.core.log.log_walk import LogWalk
from broker.core.records.journal import journal_statement, written_down
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.dead_letters.recovery import rows as push_replay
from broker.features.dead_letters.recovery.push_replay import Meant, Missed
from broker.features.dead_letters.recovery.rows import ReplayStep, find_expired, replay_pushes
from broker.model.errors import FailedPrecondition
from broker.model.journal import NOBODY, PUSH, Attribution, Author, Event, Journal, JournalMode, rows_of
from broker.model.timestamps import END_OF_TIME, EVER
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import paused

MINUTE = timedelta(minutes=1)


async def _expired(log: Log, since: datetime = EVER) -> Meant:
    until = log.start + timedelta(hours=1)
    async with log.session() as session:
        found = await find_expired(session, subscription=log.subscription, since=since, until=until)
    walk = LogWalk(
        subscription_id=log.subscription.subscription_id,
        starts={shard_id: expired.start for shard_id, expired in found.items()},
        ends={shard_id: expired.last_seq for shard_id, expired in found.items()},
        until=END_OF_TIME,
    )
    return Meant(missed=Missed.EXPIRED, walk=walk, since=since, until=until)


def _unseen(log: Log, end: int, endpoint_time: datetime) -> Meant:
    walk = LogWalk(
        subscription_id=log.subscription.subscription_id,
        starts={log.shard_id: log.start},
        ends={log.shard_id: end},
        until=endpoint_time,
    )
    return Meant(missed=Missed.UNSEEN, walk=walk, since=endpoint_time, until=END_OF_TIME)


async def _replay(
    log: Log, meant: Meant, *, most: int = 500, now: datetime | None = None, connection: HotConnection | None = None
) -> Mapping[int, Outcome]:
    """Step by step, to the end."""
    outcomes: dict[int, Outcome] = {}
    progress: dict[str, Any] = {}
    while (after := meant.walk.next_position(progress)) is not None:
        step = ReplayStep(
            meant=meant, after=after, max_messages=most, author=NOBODY, now=now or log.start + 2 * MINUTE
        )
        async with log.session(connection) as session:
            await session.run((BEGIN, {}))
            done = await replay_pushes(session, step, log.attempt_ids)
            await session.run((COMMIT, {}))
        assert len(done.outcomes) <= most
        outcomes |= done.outcomes
        at = done.rest
        progress = {"shard": log.shard_id + 1}
        if at is not None:
            progress = {"shard": at.shard_id, "time": at.publish_time.isoformat(), "seq": at.seq}
    return outcomes


async def _report(log: Log, event: Event, *seqs: int, by: Author, at: datetime, answer: str = "") -> None:
    ranges = [(seq, seq + 1) for seq in seqs]
    rows = list(rows_of(None, log.subscription.subscription_id, event, 1, ranges, author=by, answer=answer))
    async with log.session() as session:
        await session.run(journal_statement(log.shard_id, rows, at))


@pytest.mark.parametrize("most", [1, 500])
async def test_what_expired_comes_once_more_and_only_that(log: Log, most: int) -> None:
    await log.publish(*"abcdef")
    [delivery] = await log.pull(4)
    await log.acknowledge(delivery, [1])
    await log.publish("g", now=log.start + MINUTE)
    assert await log.pull_texts(now=log.start + MINUTE, retention=59 * SECOND) == ["g"]
    meant = await _expired(log)
    assert await _replay(log, meant, most=most) == dict.fromkeys((1, 3, 4, 5, 6), Outcome.REPLAYED)
    assert await _replay(log, await _expired(log), most=most) == {}, "they came back: nothing is left to recover"
    again = await log.pull(now=log.start + 2 * MINUTE, retention=90 * SECOND)
    assert sorted(text for each in again for text in _texts(each)) == list("acdefg"), "however old they are"


async def test_only_what_expired_since_then_is_meant(log: Log) -> None:
    for text, after in zip("abc", (0, 1, 2), strict=True):
        now = log.start + after * MINUTE
        await log.publish(text, now=now)
        assert await log.pull_texts(now=now, retention=SECOND) == [text]
    meant = await _expired(log, since=log.start + 90 * SECOND)
    assert await _replay(log, meant) == {2: Outcome.REPLAYED}


def _texts(delivery: Any) -> list[str]:
    return [message.data.decode() for message in delivery.messages]


@pytest.mark.parametrize("most", [1, 500])
async def test_what_the_endpoint_has_not_taken_comes_and_the_rest_is_left_as_it_is(log: Log, most: int) -> None:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("a")
    await log.publish(*"bcdefg")
    [early] = await log.pull(4)
    await log.acknowledge(early)
    [late] = await log.pull(1)
    endpoint_time = log.start + SECOND
    await _report(log, Event.ACKED, 2, by=PUSH, at=log.start)
    await _report(log, Event.ACKED, 3, by=PUSH, at=endpoint_time)
    await _report(log, Event.ACKED, 4, by=NOBODY, at=endpoint_time)
    await _report(log, Event.ACKED, 5, by=NOBODY, at=endpoint_time, answer="discarded")
    await log.publish("h", now=endpoint_time)
    done = await _replay(log, _unseen(log, 8, endpoint_time), most=most, now=endpoint_time)
    assert done == {
        1: Outcome.DEAD_LETTERED,
        2: Outcome.REPLAYED,
        3: Outcome.DELIVERED,
        4: Outcome.REPLAYED,
        5: Outcome.DISCARDED,
        6: Outcome.OUTSTANDING,
        7: Outcome.WAITING,
    }
    assert _texts(late) == ["f"]
    assert sorted(await log.pull_texts(now=endpoint_time)) == ["b", "d", "g", "h"]


async def test_those_of_a_key_come_in_its_order_behind_what_is_out(log: Log) -> None:
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish(*"abc", key="k")
    ordered: dict[str, Any] = {"ordered": True}
    await log.execute(f"UPDATE cursors SET next_seq = 4 WHERE shard_id = {log.shard_id}")
    await log.publish("d", key="k", now=log.start + SECOND)
    [out] = await log.pull(now=log.start + SECOND, **ordered)
    done = await _replay(log, _unseen(log, 4, log.start + SECOND), most=2, now=log.start + SECOND)
    assert done == dict.fromkeys((1, 2, 3), Outcome.REPLAYED)
    assert await log.pull_texts(now=log.start + 2 * SECOND, **ordered) == []
    async with log.session() as session:
        acks = {log.name(out): {0}}
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=log.start)
    assert await log.pull_texts(now=log.start + 2 * SECOND, **ordered) == list("abc")


async def test_of_a_subscription_that_is_detached_nothing_comes(log: Log) -> None:
    await log.publish("a")
    await log.execute("DELETE FROM cursors")
    with pytest.raises(FailedPrecondition, match="detached"):
        await _replay(log, _unseen(log, 1, log.start + SECOND))


@pytest.mark.parametrize("rule", [True, False])
async def test_what_is_acked_meanwhile_is_known_to_be(
    log: Log, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    """The journal is read behind the locks of the rows: before them it would not have the ack yet."""
    if not rule:
        then, next_of = push_replay._read_journal, push_replay._next

        async def told_early(connection: Any, step: Any, backlog: Any) -> Any:
            messages, rest = await next_of(connection, step, backlog)
            early = await then(connection, backlog, messages)

            async def known(*_: Any) -> Any:
                return early

            monkeypatch.setattr(push_replay, "_read_journal", known)
            return messages, rest

        monkeypatch.setattr(push_replay, "_next", told_early)
    await log.publish("a")
    [delivery] = await log.pull()
    meant = _unseen(log, 1, log.start + SECOND)
    async with paused(log.database, before="d.seqs && $") as session:
        replaying = asyncio.create_task(_replay(log, meant, now=log.start + SECOND, connection=session))
        await session.reached.wait()
        name, reported = log.name(delivery), Attribution(Journal(mode=JournalMode.ALL), PUSH)
        at = log.start + SECOND
        async with (
            log.session() as acking,
            written_down(
                acking, shard_id=log.shard_id, attempts=[name], journaled=True, clock=lambda: at
            ) as ledger,
        ):
            assert ledger is not None
            missing = await acknowledge(acking, shard_id=log.shard_id, acks={name: {0}})
            ledger.acked([(name, {0})], [missing], {name: [({0}, reported)]})
        session.go.set()
        done = await replaying
    assert done == {1: Outcome.DELIVERED if rule else Outcome.REPLAYED}


async def test_what_outlived_the_time_that_its_publisher_gave_it_does_not_come(log: Log) -> None:
    await log.publish("a", ttl=SECOND)
    await log.publish("b")
    [delivery] = await log.pull(now=log.start)
    await log.acknowledge(delivery)
    await log.publish("c", ttl=SECOND)
    later = log.start + MINUTE
    assert await log.pull(now=later) == []
    done = await _replay(log, _unseen(log, 3, later), now=later)
    assert done == {1: Outcome.EXPIRED, 2: Outcome.REPLAYED, 3: Outcome.EXPIRED}
    assert (await _expired(log)).walk.ends == {log.shard_id: 3}
    assert await _replay(log, await _expired(log), now=later) == {}
