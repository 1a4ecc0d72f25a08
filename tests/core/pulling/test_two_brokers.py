"""Streams through several brokers on one database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager

import httpx
import pytest

from tests.cli.processes import faults
from tests.core.pulling.stream import Properties, Received, Streams, numbered
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually


@pytest.fixture(scope="module")
def urls(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[list[str]]:
    with clone() as database_url:
        brokers = [BrokerProcess("--database-url", database_url, "--port", "0") for _ in range(2)]
        yield [broker.wait_until_ready().url for broker in brokers]
        for broker in brokers:
            assert broker.stop() == 0
            assert faults(broker) == []


@pytest.fixture
async def two(urls: list[str], project: str) -> AsyncIterator[tuple[Streams, Streams]]:
    """The same project through both."""
    async with (
        httpx.AsyncClient(base_url=urls[0], timeout=60, verify=NO_TLS) as client,
        httpx.AsyncClient(base_url=urls[1], timeout=60, verify=NO_TLS) as other,
    ):
        both = Streams(urls[0], Rest(client, project)), Streams(urls[1], Rest(other, project))
        yield both
        await asyncio.gather(*(streams.close() for streams in both))


Settle = Callable[[Streams, list[Received]], Awaitable[None]]


async def _ack(streams: Streams, messages: list[Received]) -> None:
    await streams.rest.acknowledge([{"ackId": m.ack_id} for m in messages])


async def _nack(streams: Streams, messages: list[Received]) -> None:
    await streams.rest.modify_ack_deadline([{"ackId": m.ack_id} for m in messages], 0)


async def _ack_on_a_stream(streams: Streams, messages: list[Received]) -> None:
    """Of another client."""
    stream = await streams.open(max_outstanding_messages=1)
    await stream.ack([*messages, *await stream.take()])
    await stream.half_close()
    await stream.ended()


@pytest.mark.parametrize("settle", [_ack, _nack, _ack_on_a_stream], ids=lambda s: s.__name__)
async def test_what_is_settled_through_another_broker_makes_capacity(
    two: tuple[Streams, Streams], settle: Settle
) -> None:
    here, there = two
    await here.subscribe()
    await here.rest.publish(*numbered(9))
    stream = await here.open(max_outstanding_messages=2)
    await stream.take(2)
    await stream.has_no_more()
    await settle(there, stream.received[:2])
    await stream.take(2)
    await stream.has_no_more()


async def test_a_publish_in_one_broker_reaches_streams_of_another_at_once(two: tuple[Streams, Streams]) -> None:
    here, there = two
    await here.subscribe()
    stream = await there.waiting()
    loop = asyncio.get_running_loop()
    waited = 0.0
    for text in numbered(12):
        before = loop.time()
        await here.rest.publish(text)
        assert await stream.take_texts() == [text]
        waited += loop.time() - before
        await stream.ack(stream.received[-1:])
    # Without notifications each would wait for the next look at the heads, about a second after the one before.
    assert waited < 12 * 0.4


async def test_a_nack_in_one_broker_reaches_streams_of_another(two: tuple[Streams, Streams]) -> None:
    here, there = two
    await here.subscribe()
    await here.rest.publish("a")
    had = await (first := await here.open(stream_ack_deadline_seconds=600)).take()
    other = await there.waiting()
    await first.half_close()
    await first.ended()
    await _nack(here, had)
    assert await other.take_texts() == ["a"]  # ten minutes before its deadline would bring it


@pytest.mark.parametrize(
    ("change", "code"),
    [("delete", "NOT_FOUND"), ("detach", "FAILED_PRECONDITION"), ("push", "FAILED_PRECONDITION")],
)
@pytest.mark.parametrize("full", [False, True])
async def test_a_change_through_one_broker_ends_the_streams_of_another(
    two: tuple[Streams, Streams], change: str, code: str, full: bool
) -> None:
    here, there = two
    await here.subscribe()
    stream = await there.waiting(max_outstanding_messages=1)
    if full:
        await here.rest.publish("a", "b")
        await stream.take()
    name = here.rest.subscription()
    match change:
        case "delete":
            await here.rest.ok("DELETE", name)
        case "detach":
            await here.rest.ok("POST", f"{name}:detach")
        case "push":
            config = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/"}}
            await here.rest.ok("POST", f"{name}:modifyPushConfig", config)
    assert (await stream.ended()).code == code


async def test_a_change_through_one_broker_shows_on_the_streams_of_another(two: tuple[Streams, Streams]) -> None:
    here, there = two
    await here.subscribe()
    stream = await there.waiting()
    await here.update("enableExactlyOnceDelivery", enableExactlyOnceDelivery=True)

    async def shows() -> bool:
        await here.rest.publish("look")
        await stream.ack(await stream.take())
        return stream.properties[-1] == Properties(True, False)

    await eventually(shows)


async def test_streams_of_two_brokers_each_fill_their_window_and_no_more(two: tuple[Streams, Streams]) -> None:
    """What a broker claims is for streams that have room: it hoards nothing from the other."""
    here, there = two
    await here.subscribe()
    await here.rest.publish(*numbered(40))
    first = await here.open(max_outstanding_messages=5)
    await first.take(5)
    second = await there.open(max_outstanding_messages=5)
    await second.take(5)
    last = await there.open()
    await last.take(30)
    came = [m.text for stream in (first, second, last) for m in stream.received]
    assert sorted(came) == sorted(numbered(40))


async def test_streams_of_two_brokers_share_the_work(two: tuple[Streams, Streams]) -> None:
    await two[0].subscribe()
    count = 3000
    opened = [await streams.waiting(connection=n, max_outstanding_messages=20) for streams in two for n in range(3)]
    for first in range(0, count, 1000):
        await two[0].rest.publish(*numbered(1000, first))
    await eventually(lambda: all(len(s.received) == 20 for s in opened))
    for stream in opened:
        stream.acks_at_once = True
        await stream.ack(stream.received)
    await eventually(lambda: sum(len(s.received) for s in opened) >= count)
    counts = [len(s.received) for s in opened]
    assert sorted(m.text for s in opened for m in s.received) == sorted(numbered(count))
    assert min(sum(counts[:3]), sum(counts[3:])) >= count / 10, counts


async def test_a_client_finds_what_it_had_through_another_broker(two: tuple[Streams, Streams]) -> None:
    """It may be acked there; and its deadline brings it to a stream there."""
    here, there = two
    await here.subscribe()
    await here.rest.publish(*numbered(4))
    broken = await here.open(max_outstanding_messages=4)
    had = await broken.take(4)
    await broken.close()
    again = await there.waiting()
    await again.ack(had[:2])
    before = asyncio.get_running_loop().time()
    await again.modify(had[2:], 1)
    came = await again.take(2)
    assert sorted(m.text for m in came) == sorted(m.text for m in had[2:])
    assert min(m.at for m in came) - before >= 1
    await eventually(lambda: _two_left(there))


async def _two_left(streams: Streams) -> bool:
    return await streams.unacked() == 2


async def test_a_broker_that_dies_leaves_its_streams_messages_to_the_deadline(
    clone: Callable[[], AbstractContextManager[str]], project: str
) -> None:
    """kill -9 of one of two brokers.  What it had handed over is due when it was promised, all else at once."""
    with clone() as database_url:
        brokers = [BrokerProcess("--database-url", database_url, "--port", "0") for _ in range(2)]
        dying, living = [broker.wait_until_ready() for broker in brokers]
        async with httpx.AsyncClient(base_url=living.url, timeout=60, verify=NO_TLS) as client:
            rest = Rest(client, project)
            streams, its = Streams(living.url, rest), Streams(dying.url, rest)
            await streams.subscribe()
            await rest.publish(*numbered(20))
            broken = await its.open(max_outstanding_messages=5)
            had = await broken.take(5)
            before = asyncio.get_running_loop().time()
            await rest.modify_ack_deadline([{"ackId": m.ack_id} for m in had], 1)
            dying.kill()
            assert (await broken.ended()).code == "UNAVAILABLE"
            stream = await streams.open()
            await stream.until(lambda: len(stream.received) >= 20)
            assert sorted(m.text for m in stream.received) == sorted(numbered(20))
            mine = {m.message_id for m in had}
            assert min(m.at for m in stream.received if m.message_id in mine) - before >= 1
            await asyncio.gather(streams.close(), its.close())
        assert living.stop() == 0
