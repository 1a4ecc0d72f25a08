"""Tails of topics that begin earlier, that go on where they were, and that share one reading of the log (F3)."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.core.process.tails import Tail, Tails
from broker.features.inspect import shared_tail
from broker.features.inspect.shared_tail import MAX_QUEUED, Reader, Reading, SharedTail
from broker.features.inspect.tail_position import parse_position_token, position_token
from broker.model.errors import InvalidArgument, ResourceExhausted
from tests.features.inspect.test_inspection import Events, tailing
from tests.fixtures.broker import PATIENCE_SECONDS, Rest, message, text
from tests.fixtures.in_process import running_in_process

START = datetime(2026, 1, 1, tzinfo=UTC)


class IdEvents(Events):
    """Events with their ids."""

    async def with_id(self) -> tuple[str, str]:
        """The id and the text of the next message."""
        id_ = ""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self.lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    id_ = value
                elif name == "data":
                    return id_, text(json.loads(value))
        raise EOFError


@asynccontextmanager
async def reading(rest: Rest, after: str = "", **params: str) -> AsyncIterator[IdEvents]:
    async with tailing(rest, headers={"last-event-id": after} if after else None, **params) as events:
        events.__class__ = IdEvents
        yield events  # type: ignore[misc]


async def _texts(events: IdEvents, count: int) -> list[str]:
    return [(await events.with_id())[1] for _ in range(count)]


async def test_a_tail_begins_at_a_time_and_goes_on_with_what_comes(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    await rest.publish("one", "two")
    async with reading(rest, startTime="2000-01-01T00:00:00Z") as events:
        assert await _texts(events, 2) == ["one", "two"]
        await rest.publish("three")
        assert await _texts(events, 1) == ["three"]
    second = (await rest.ok("GET", f"{rest.topic()}/messages"))["messages"][0]["publishTime"]
    async with reading(rest, startTime=second) as events:
        assert await _texts(events, 1) == ["three"]


async def test_a_tail_goes_on_behind_the_last_event_of_another_connection(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    async with reading(rest) as events:
        await rest.publish("one", "two", "three")
        await events.with_id()
        last, shown = await events.with_id()
        assert shown == "two"
    await rest.publish("four")
    async with reading(rest, last, startTime="2000-01-01T00:00:00Z") as events:  # the id goes before the time
        assert await _texts(events, 2) == ["three", "four"]
        await rest.publish("five")
        assert await _texts(events, 1) == ["five"]


async def test_a_tail_shows_previews(rest: Rest) -> None:
    await rest.create_topic()
    async with tailing(rest, previewBytes="3") as events:
        await rest.publish("a long one")
        _, shown = await events.next()
        assert (text(shown), shown["dataSize"]) == ("a l", 10)


async def test_what_is_no_place_in_a_tail_is_refused(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("other")
    async with reading(rest) as events:
        await rest.publish("one")
        last, _ = await events.with_id()
    for topic, id_ in (("topic", "nonsense"), ("topic", "W10"), ("other", last)):
        code, why = await rest.error("GET", f"{rest.topic(topic)}:tail", headers={"last-event-id": id_})
        assert (code, "Last-Event-ID" in why) == ("INVALID_ARGUMENT", True)
    code, why = await rest.error("GET", f"{rest.topic()}:tail", params={"startTime": "noon"})
    assert (code, "startTime" in why) == ("INVALID_ARGUMENT", True)


async def test_readers_that_come_and_go_have_each_message_of_all_shards_once(clone: Any) -> None:
    """They share one tail, or catch up with it, while messages are published."""
    with clone() as database_url:
        broker = Broker(AppConfig(database_url=database_url, shards_per_topic=3, pool_size=4))
        async with running_in_process(broker) as client:
            rest = Rest(client, "projects/several")
            await rest.create_topic(messageRetentionDuration="3600s")
            expected = {f"{n}" for n in range(60)}

            async def publish() -> None:
                for n in range(60):
                    await rest.publish({"orderingKey": f"k{n % 7}"} | message(str(n)))

            async def read(first: int) -> list[str]:
                found: list[str] = []
                last = ""
                while len(found) < 60:
                    options = {} if last else {"startTime": "2000-01-01T00:00:00Z"}
                    async with reading(rest, last, **options) as events:
                        for _ in range(min(first, 60 - len(found))):
                            last, shown = await events.with_id()
                            found.append(shown)
                return found

            *each, _ = await asyncio.gather(read(7), read(19), read(60), publish())
            for found in each:
                assert (len(found), set(found)) == (60, expected)


async def test_readers_of_one_tail_count_once_and_read_the_log_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(AppConfig(database_url=database_url))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/shared")
        await rest.create_topic()
        tails = broker.claiming.tails
        opened: list[Sequence[int]] = []
        open_tail = tails.open

        def noted(project: str, shard_ids: Sequence[int]) -> Tail:
            opened.append(shard_ids)
            return open_tail(project, shard_ids)

        monkeypatch.setattr(tails, "open", noted)
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(tailing(rest)) for _ in range(20)]
            await rest.publish("one")
            assert [text((await reader.next())[1]) for reader in readers] == ["one"] * 20
            assert len(opened) == 1


async def test_what_is_retained_no_more_is_counted_when_a_tail_goes_on(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="600s")
    async with reading(rest) as events:
        first_id, *_ = await rest.publish("one", "two", "three")
        last, _ = await events.with_id()
    [[shard_id, position]] = parse_position_token(last).items()
    yesterday = position.publish_time - timedelta(days=1)
    long_ago = position_token({shard_id: LogPosition(shard_id, yesterday, position.seq)})
    await rest.publish("four")
    async with reading(rest, long_ago) as events:
        assert await _texts(events, 3) == ["two", "three", "four"]  # these are not too old
    await rest.ok("POST", f"{rest.topic()}:retract", {"messageIds": [first_id]})
    before = position_token({shard_id: LogPosition(shard_id, yesterday, 0)})
    async with tailing(rest, headers={"last-event-id": before}) as skipping:
        assert await skipping.next() == ("skipped", {"messages": 1})
        assert text((await skipping.next())[1]) == "two"


# --- the shared reading -------------------------------------------------------------------------------------


def _reading(shard_id: int, seq: int, count: int = 1) -> Reading:
    messages = [MatchedMessage(shard_id, seq - n, START, None, "{}", b"") for n in range(count - 1, -1, -1)]
    return Reading(LogPosition(shard_id, START, seq), messages)


def test_a_reader_that_is_slow_is_left_out_of_what_has_no_place_and_gets_the_number() -> None:
    reader = Reader()
    for seq in range(1, MAX_QUEUED + 1):
        reader.put(_reading(1, seq))
    for seq in range(MAX_QUEUED + 1, MAX_QUEUED + 6):
        reader.put(_reading(1, seq))
        reader.put(_reading(2, seq, 2))
    assert len(reader.queue) == MAX_QUEUED + 2
    first, second = list(reader.queue)[-2:]
    assert (first.position.shard_id, first.position.seq, first.skipped) == (1, MAX_QUEUED + 5, 5)
    assert (second.position.shard_id, second.position.seq, second.skipped) == (2, MAX_QUEUED + 5, 10)
    for _ in range(3):
        reader.queue.popleft()
    reader.put(_reading(1, 90))
    reader.put(_reading(1, 91))
    assert [each.skipped for each in reader.queue][-3:] == [10, 0, 1]


def test_a_tail_has_so_many_readers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_tail, "MAX_READERS", 2)
    shared = SharedTail("key", Tails().open("projects/p", [1]))
    readers = [shared.enter(), shared.enter()]
    with pytest.raises(ResourceExhausted, match="at most 2"):
        shared.enter()
    shared.leave(readers[0])
    shared.enter()


def test_a_reader_joins_once_it_is_as_far_as_the_tail() -> None:
    shared = SharedTail("key", Tails().open("projects/p", [1, 2]))
    shared.positions = {1: LogPosition(1, START, 5), 2: LogPosition(2, START, 0)}
    reader = shared.enter()
    assert not shared.join(reader, {1: LogPosition(1, START, 4), 2: LogPosition(2, START, 9)})
    shared.read(_reading(1, 6))
    assert not reader.queue
    assert shared.join(reader, {1: LogPosition(1, START, 6), 2: LogPosition(2, START, 9)})
    shared.read(_reading(1, 7))
    assert [each.position.seq for each in reader.queue] == [7]


@given(
    st.dictionaries(
        st.integers(1, 2**40), st.tuples(st.datetimes(), st.integers(-1, 2**40)), min_size=1, max_size=9
    )
)
def test_an_id_of_an_event_says_where_its_reader_stands(of_each: dict[int, tuple[datetime, int]]) -> None:
    positions = {id_: LogPosition(id_, time.replace(tzinfo=UTC), seq) for id_, (time, seq) in of_each.items()}
    assert parse_position_token(position_token(positions)) == positions


@pytest.mark.parametrize("token", ["", "x", "W10", "WzFd", "WzEsMl0", "é"])
def test_what_is_no_id_of_an_event_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument, match="Last-Event-ID"):
        parse_position_token(token)
