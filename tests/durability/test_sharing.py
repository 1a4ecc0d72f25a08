"""Several brokers on one database, and callers that go away while they wait."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests.cli.processes import faults, waiting_pull
from tests.fixtures.broker import NO_TLS, PATIENCE_SECONDS, BrokerProcess, Rest, eventually, text


@pytest.fixture(scope="module")
def shared_database(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    with clone() as url:
        yield url


@pytest.fixture(scope="module")
def urls(shared_database: str) -> Iterator[list[str]]:
    """Two brokers on one database, for all tests here."""
    brokers = [BrokerProcess("--database-url", shared_database, "--port", "0") for _ in range(2)]
    yield [broker.wait_until_ready().url for broker in brokers]
    for broker in brokers:
        assert broker.stop() == 0
        assert faults(broker) == []


@pytest.fixture
async def two(urls: list[str], project: str) -> AsyncIterator[tuple[Rest, Rest]]:
    """The same project through both."""
    async with (
        httpx.AsyncClient(base_url=urls[0], timeout=60, verify=NO_TLS) as client,
        httpx.AsyncClient(base_url=urls[1], timeout=60, verify=NO_TLS) as other,
    ):
        yield Rest(client, project), Rest(other, project)


async def test_a_publish_in_one_broker_wakes_a_pull_that_waits_in_another(two: tuple[Rest, Rest]) -> None:
    here, there = two
    await here.create_topic()
    await here.create_subscription()
    loop = asyncio.get_running_loop()
    waited = 0.0
    for n in range(12):
        pull = await waiting_pull(there)
        before = loop.time()
        await here.publish(f"m{n}")
        received = (await pull).json()["receivedMessages"]
        waited += loop.time() - before
        assert [text(m) for m in received] == [f"m{n}"]
        await there.acknowledge(received)
    # Without notifications each would wait for the next look at the heads, about a second after the one before.
    assert waited < 12 * 0.4


async def test_a_nack_in_one_broker_wakes_a_pull_that_waits_in_another(two: tuple[Rest, Rest]) -> None:
    here, there = two
    await here.create_topic()
    await here.create_subscription()
    await here.publish("again")
    received = await here.pull()
    loop = asyncio.get_running_loop()
    waited = 0.0
    for _ in range(12):
        pull = await waiting_pull(there)
        before = loop.time()
        await here.modify_ack_deadline(received, 0)
        received = (await pull).json()["receivedMessages"]
        waited += loop.time() - before
        assert [text(m) for m in received] == ["again"]
        here, there = there, here
    assert waited < 12 * 0.4


async def test_deleting_a_subscription_in_one_broker_ends_the_pull_that_waits_in_another(
    two: tuple[Rest, Rest],
) -> None:
    here, there = two
    await here.create_topic()
    await here.create_subscription()
    pull = await waiting_pull(there)
    await here.ok("DELETE", here.subscription())
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await pull
    assert answer.status_code == 404
    assert answer.json()["error"]["status"] == "NOT_FOUND"


async def test_a_topic_made_in_one_broker_is_published_to_in_another_and_not_after_its_deletion(
    two: tuple[Rest, Rest],
) -> None:
    here, there = two
    await here.create_topic()
    await here.create_subscription()
    assert len(await there.publish("m")) == 1
    await here.ok("DELETE", here.topic())
    code, _ = await there.error("POST", f"{there.topic()}:publish", {"messages": [{"data": "YQ=="}]})
    assert code == "NOT_FOUND"


async def _open_pull(rest: Rest) -> asyncio.StreamWriter:
    """A caller with a pull under way, on a socket that the test can treat badly."""
    url = urlsplit(str(rest.client.base_url))
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    body = json.dumps({"maxMessages": 10}).encode()
    head = f"POST /v1/{rest.subscription()}:pull HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


async def _hang_up(writer: asyncio.StreamWriter, *, rudely: bool) -> None:
    if rudely:  # what the kernel sends for a program that was killed with data unread
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    await writer.wait_closed()


@dataclass
class Subscribed:
    """A subscription, with a look behind the scenes."""

    rest: Rest
    database_url: str

    async def attempt_numbers(self) -> list[int]:
        """Of everything that is out, which attempt it is."""
        query = """
            SELECT attempt_number FROM delivery_attempts JOIN subscriptions USING (subscription_id)
            WHERE name = %s
        """
        async with await psycopg.AsyncConnection.connect(self.database_url) as connection:
            rows = await connection.execute(query, [self.rest.subscription()])
            return [number for (number,) in await rows.fetchall()]


@pytest.fixture
async def subscribed(two: tuple[Rest, Rest], shared_database: str) -> Subscribed:
    rest, _ = two
    await rest.create_topic()
    await rest.create_subscription()
    return Subscribed(rest, shared_database)


@pytest.mark.parametrize("rudely", [False, True])
async def test_a_caller_that_hung_up_while_its_pull_waited_swallows_nothing(
    subscribed: Subscribed, rudely: bool
) -> None:
    rest = subscribed.rest
    for n in range(15):
        callers = [await _open_pull(rest) for _ in range(3)]
        assert await rest.pull() == []  # by now theirs wait
        for caller in callers:
            await _hang_up(caller, rudely=rudely)
        await rest.publish(f"m{n}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            received = await rest.pull(wait=True)
        assert [text(m) for m in received] == [f"m{n}"]
        assert await subscribed.attempt_numbers() == [1]
        await rest.acknowledge(received)


async def test_a_caller_that_hung_up_leaves_the_message_to_the_next_that_waits(subscribed: Subscribed) -> None:
    rest = subscribed.rest
    for n in range(6):
        caller = await _open_pull(rest)
        pull = await waiting_pull(rest)
        await _hang_up(caller, rudely=bool(n % 2))
        await rest.publish(f"m{n}")
        received = (await pull).json()["receivedMessages"]
        assert [text(m) for m in received] == [f"m{n}"]
        assert await subscribed.attempt_numbers() == [1]
        await rest.acknowledge(received)


async def test_hanging_up_at_the_moment_of_a_publish_loses_nothing(subscribed: Subscribed) -> None:
    """The answer may already be on its way to the caller that leaves; then the ack deadline brings it back."""
    rest = subscribed.rest
    published: list[str] = []
    received: list[str] = []
    for n in range(20):
        caller = await _open_pull(rest)
        _, ids = await asyncio.gather(_hang_up(caller, rudely=True), rest.publish(f"m{n}"))
        published += ids
        received += [m["message"]["messageId"] for m in await rest.drain()]

    async def all_received() -> bool:
        received.extend(m["message"]["messageId"] for m in await rest.drain())
        return len(received) >= len(published)

    await eventually(all_received)
    assert sorted(received, key=int) == published
