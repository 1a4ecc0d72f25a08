"""Heads that are too large are refused with what was read of them, and answers do not fall behind requests."""

import asyncio

import pytest

from broker.net.http1.reader import MAX_HEAD_BYTES, MAX_HEADERS
from tests.fixtures.broker import BrokerProcess, eventually
from tests.limits.conftest import MEGABYTE, Memory, good_client, rss
from tests.limits.raw import Caller, calling, request

LARGE = b"x" * 1_000_000
START = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"

TOO_LARGE = {
    "a URL": (b"GET /" + LARGE + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "a query": (b"GET /healthz?" + LARGE + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "a method": (LARGE + b" / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a header's value": (START + b"X: " + LARGE + b"\r\n\r\n", 431),
    "a header's name": (START + LARGE + b": x\r\n\r\n", 431),
    "a header that never ends": (START + b"X: " + LARGE, 431),
    "many headers": (START + b"X: y\r\n" * 200_000 + b"\r\n", 431),
    "some headers too many": (START + b"X: y\r\n" * MAX_HEADERS + b"\r\n", 431),
    "trailers": (
        request("POST", "/v1/projects/project/topics/t:publish", "Transfer-Encoding: chunked")
        + b"0\r\n" + b"X: y\r\n" * 200_000 + b"\r\n",
        431,
    ),
    "the extension of a chunk": (
        request("POST", "/v1/projects/project/topics/t:publish", "Transfer-Encoding: chunked") + b"2;" + LARGE,
        431,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_head_that_is_too_large_is_refused(broker: BrokerProcess, name: str) -> None:
    sent, status = TOO_LARGE[name]
    async with calling(broker.url) as caller:
        sending = asyncio.create_task(caller.send_all(sent))
        assert (await caller.answer()).status == status
        assert await caller.rest() == b""
        await sending


async def test_the_largest_head_is_read(broker: BrokerProcess) -> None:
    async with calling(broker.url) as caller:
        available = MAX_HEAD_BYTES - len(START) - 2 * MAX_HEADERS * 6 - 1024
        headers = b"X: y\r\n" * (MAX_HEADERS - 2) + b"X: " + b"z" * available + b"\r\n"
        caller.send(START, headers, b"\r\n")
        assert (await caller.answer()).status == 200
        assert await caller.is_served()


async def test_large_heads_in_great_number_take_no_memory(broker: BrokerProcess) -> None:
    async def send(sent: bytes) -> None:
        async with calling(broker.url) as caller:
            await caller.send_all(sent)
            await caller.rest()

    before = rss(broker)
    async with good_client(broker):
        for sent, _ in TOO_LARGE.values():
            await asyncio.gather(*[send(sent) for _ in range(50)])
    assert rss(broker) - before < 100 * MEGABYTE


@pytest.mark.parametrize("path", ["/healthz", "/v1/projects/project/topics/absent"])
async def test_60_mb_of_pipelined_requests_are_read_as_they_are_answered(broker: BrokerProcess, path: str) -> None:
    """They took 3 GB."""
    one = request("GET", path)
    async with Memory(broker) as memory, good_client(broker), calling(broker.url) as caller:
        sending = asyncio.create_task(_send_slowly(caller, one * 2000, 60 * MEGABYTE))
        answers = asyncio.create_task(_count_answers(caller, 1000))
        assert await answers == 1000
        sending.cancel()
    assert memory.grown < 100 * MEGABYTE


async def _send_slowly(caller: Caller, block: bytes, size: int) -> None:
    """As fast as the broker takes it."""
    for _ in range(size // len(block)):
        caller.send(block)
        await caller.writer.drain()


async def _count_answers(caller: Caller, wanted: int) -> int:
    for _ in range(wanted):
        await caller.answer()
    return wanted


async def test_pipelined_requests_wait_in_the_socket_while_the_first_waits_for_its_answer(
    broker: BrokerProcess,
) -> None:
    before = rss(broker)
    async with good_client(broker) as good, calling(broker.url) as caller:
        await good.rest.create_topic("quiet")
        await good.rest.create_subscription("waiting", topic="quiet")
        pull = request("POST", f"/v1/{good.rest.subscription('waiting')}:pull", body=b'{"maxMessages":1}')
        sending = asyncio.create_task(_send_slowly(caller, pull + request("GET", "/healthz") * 2000, 60 * MEGABYTE))
        sent_before = -1

        def has_stopped() -> bool:
            nonlocal sent_before
            buffered = caller.writer.transport.get_write_buffer_size()
            sent_before, last = buffered, sent_before
            return buffered == last and buffered > 0

        await eventually(has_stopped)
        assert rss(broker) - before < 50 * MEGABYTE
        await good.rest.publish("at last", topic="quiet")
        assert b"receivedMessages" in (await caller.answer()).body
        assert [(await caller.answer()).status for _ in range(100)] == [200] * 100
        sending.cancel()
