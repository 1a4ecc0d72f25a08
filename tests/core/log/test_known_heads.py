"""Where shards lie on nodes a flush says which head it expects, and what it expects wrongly is undone."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from broker.core.log import append_messages_citus, known_heads
from broker.core.log.known_heads import KnownHeads
from broker.core.log.messages import Appended, append_messages, encode_messages
from broker.model.errors import Aborted
from broker.model.message import NewMessage
from tests.db.test_on_nodes import as_on_nodes
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import changed
from tests.query_plans.recorder import Recorder

pytestmark = pytest.mark.one_server("it has both forms of a statement, and nodes do not take the other one")


class Publisher:
    """Appends as a process does on nodes."""

    def __init__(self, log: Log) -> None:
        self.log, self.heads = log, KnownHeads()
        self.sent: Sequence[str] = ()

    async def publish(self, *texts: str) -> Appended | None:
        """Raises BrokerError."""
        requests = [encode_messages([NewMessage(data=text.encode()) for text in texts])]
        async with as_on_nodes(self.log) as session:
            recorder = Recorder(session)
            try:
                return await append_messages(
                    recorder,  # type: ignore[arg-type]
                    shard_id=self.log.shard_id,
                    requests=requests,
                    now=self.log.start,
                    heads=self.heads,
                )
            finally:
                self.sent = [statement.name.decode() for statement in recorder.sent]

    async def until_it_knows(self) -> list[str]:
        """What was published."""
        texts = list(map(str, range(known_heads.FIRST_NEEDED + 1)))
        for text in texts:
            await self.publish(text)
            assert self.sent == ["begin", "take_sequences", "append_batch", "commit"]
        return texts


async def _head(log: Log) -> int:
    [(head,)] = await log.rows("SELECT head FROM shards")
    return int(head)


async def test_a_head_that_is_known_is_not_asked_for(log: Log) -> None:
    publisher = Publisher(log)
    texts = await publisher.until_it_knows()
    assert await publisher.publish("a", "b") == Appended(len(texts) + 1, log.start)
    assert await publisher.publish("c") == Appended(len(texts) + 3, log.start)
    assert publisher.sent == ["take_expected_sequences", "append_batch"]
    assert await log.pull_texts(now=log.start + SECOND) == [*texts, "a", "b", "c"]


async def a_flush_after_somebody_elses_stores_nothing(log: Log) -> Publisher:
    publisher = Publisher(log)
    texts = await publisher.until_it_knows()
    await log.publish("other", now=log.start - SECOND)
    with pytest.raises(Aborted):
        await publisher.publish("a")
    assert publisher.sent == ["take_expected_sequences", "append_batch"]
    assert await _head(log) == len(texts) + 1
    assert await log.pull_texts(now=log.start + SECOND) == [*texts, "other"]
    return publisher


async def test_a_flush_after_somebody_elses_stores_nothing_and_asks_from_then_on(log: Log) -> None:
    publisher = await a_flush_after_somebody_elses_stores_nothing(log)
    for text in "abcdefg":
        await publisher.publish(text)
        assert "take_sequences" in publisher.sent
    assert await log.pull_texts(now=log.start + 2 * SECOND) == [*"abcdefg"]


async def test_it_would_store_with_wrong_sequences_if_nobody_compared_heads(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = changed(append_messages_citus._TAKE_EXPECTED_SEQUENCES, "AND head = $3 ", "AND $3 > 0 ")
    monkeypatch.setattr(append_messages_citus, "_TAKE_EXPECTED_SEQUENCES", statement)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await a_flush_after_somebody_elses_stores_nothing(log)


async def test_a_flush_at_the_same_time_as_somebody_elses(log: Log) -> None:
    """It waits for the row, and sees the head that the other has left."""
    publisher = Publisher(log)
    texts = await publisher.until_it_knows()
    outcomes = await asyncio.gather(publisher.publish("a"), log.publish("other"), return_exceptions=True)
    stored = await log.pull_texts(now=log.start + SECOND)
    assert isinstance(outcomes[0], Aborted) == ("a" not in stored)
    assert sorted(stored) == sorted([*texts, "other", *(["a"] if "a" in stored else [])])
    assert await _head(log) == len(stored)


async def test_two_flushes_in_flight(log: Log) -> None:
    """The second expects what the first leaves."""
    publisher = Publisher(log)
    texts = await publisher.until_it_knows()
    async with as_on_nodes(log) as session:

        async def publish(text: str) -> Appended | None:
            requests, heads = [encode_messages([NewMessage(data=text.encode())])], publisher.heads
            return await append_messages(
                session, shard_id=log.shard_id, requests=requests, now=log.start, heads=heads
            )

        await publish("prepared")
        found = await asyncio.gather(publish("one"), publish("two"))
    assert found == [Appended(len(texts) + number, log.start) for number in (2, 3)]
    assert await log.pull_texts(now=log.start + SECOND) == [*texts, "prepared", "one", "two"]


async def test_a_closed_shard_takes_nothing(log: Log) -> None:
    publisher = Publisher(log)
    texts = await publisher.until_it_knows()
    await log.execute("UPDATE shards SET open = false")
    with pytest.raises(Aborted):
        await publisher.publish("a")
    assert await publisher.publish("a") is None
    assert await log.rows("SELECT count(*) FROM messages") == [(len(texts),)]


async def test_a_shard_that_is_gone_with_its_topic_answers_so(log: Log) -> None:
    publisher = Publisher(log)
    await publisher.until_it_knows()
    await log.execute("DELETE FROM shards")
    assert await publisher.publish("a") is None


async def test_a_frozen_shard_takes_nothing(log: Log) -> None:
    publisher = Publisher(log)
    texts = await publisher.until_it_knows()
    await log.execute("UPDATE shards SET frozen_at = head")
    assert await publisher.publish("a") is None
    await log.execute("UPDATE shards SET frozen_at = NULL")
    assert await publisher.publish("a") == Appended(len(texts) + 1, log.start)


def test_where_others_publish_too_it_is_seldom_tried() -> None:
    heads, now, tried = KnownHeads(), datetime.now(UTC), 0
    for head in range(1, 4_000):
        if heads.expect(1, 1, now) is None:
            heads.moved(1, 1, head, now)
        else:
            tried += 1
            heads.mistaken(1)
    assert tried == 5
