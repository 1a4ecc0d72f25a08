"""Connections that want nothing, in great numbers, and more of them than the process may have files."""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.cli.processes import faults
from tests.fixtures.broker import BrokerProcess, eventually
from tests.limits.conftest import MEGABYTE, good_client, rss
from tests.limits.raw import Caller, calling, request

MANY = 1_000
FEW_FILES = 256


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    """For the test's own ends of the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * MANY:
        pytest.skip("too few files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * MANY), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def many_calling(url: str, number: int) -> AsyncIterator[list[Caller]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(calling(url)) for _ in range(number)]


def open_files(broker: BrokerProcess) -> int:
    return sum(worker.num_fds() for worker in broker.workers())


@pytest.mark.parametrize(
    "said", [b"", b"P", b"GET /v1/proj", b"POST /v1/projects/p/topics/t:publish HTTP/1.1\r\nHost: x\r\nX: "]
)
async def test_good_clients_are_served_beside_a_thousand_connections_that_want_nothing(
    broker: BrokerProcess, said: bytes
) -> None:
    before = rss(broker)
    async with good_client(broker):
        async with many_calling(broker.url, MANY) as callers:
            for caller in callers:
                await caller.send_all(said)
            await eventually(lambda: open_files(broker) >= MANY)
            async with good_client(broker):  # new ones too
                assert rss(broker) - before < 100 * MEGABYTE
        await eventually(lambda: open_files(broker) < 100)


async def test_connections_that_come_and_go_leave_nothing(broker: BrokerProcess) -> None:
    async with good_client(broker):
        await _come_and_go(broker)
        before = rss(broker)
        for _ in range(4):
            await _come_and_go(broker)
        assert rss(broker) - before < 60 * MEGABYTE


async def _come_and_go(broker: BrokerProcess) -> None:
    async def come_and_go() -> None:
        async with calling(broker.url) as caller:
            await caller.send_all(request("POST", "/v1/projects/p/topics/t:publish", body=b"{" * 2000)[:1500])

    for _ in range(10):
        await asyncio.gather(*[come_and_go() for _ in range(50)])


@pytest.fixture
def narrow(start_broker: Callable[..., BrokerProcess], database_url: str) -> BrokerProcess:
    """A broker that may have few files open."""

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))

    options: dict[str, Any] = {"preexec_fn": limit_files}
    return start_broker("--database-url", database_url, "--port", "0", **options)


async def test_more_connections_than_files_are_closed_and_those_that_were_there_served(
    narrow: BrokerProcess,
) -> None:
    async with good_client(narrow), calling(narrow.url) as there:
        assert await there.is_served()
        async with many_calling(narrow.url, 2 * FEW_FILES) as callers:
            ends = [asyncio.create_task(caller.rest()) for caller in callers]
            await eventually(lambda: sum(end.done() for end in ends) >= FEW_FILES)
            assert await there.is_served()
            assert [worker.num_fds() < FEW_FILES for worker in narrow.workers()] == [True]
        await eventually(lambda: open_files(narrow) < 100)
        async with good_client(narrow):
            pass
    assert any("new connections of clients are closed" in line for line in narrow.log)
    assert faults(narrow) == []
