"""Brokers on a database that knows neither LISTEN nor NOTIFY find out by themselves what others did (L2)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import httpx
import psycopg
import pytest

from broker.core.context.wake_ups import WakeUps
from broker.db.driver.database import Database
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, text
from tests.fixtures.database import in_schema
from tests.fixtures.relay import relayed

StartBroker = Callable[..., BrokerProcess]

_DEFINITION = b"SELECT pg_get_functiondef('notify_brokers(text, text)'::regprocedure)"


@contextlib.asynccontextmanager
async def unheard(database_url: str) -> AsyncIterator[str]:
    """The URL of a database that knows no such words."""
    with psycopg.connect(in_schema(database_url), autocommit=True) as connection:
        [(definition,)] = connection.execute(_DEFINITION).fetchall()
        connection.execute(definition.replace("pg_notify", "pg_unknown").encode())
    async with relayed(database_url) as relay:
        relay.words[b"LISTEN "] = b"UNKNOWN"
        yield f"{relay.url}?sslmode=disable"


@pytest.fixture
async def two(database_url: str, start_broker: StartBroker, project: str) -> AsyncIterator[list[Rest]]:
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(unheard(database_url))
        rests = []
        for _ in range(2):
            arguments = ("--database-url", url, "--port", "0")
            broker = await asyncio.to_thread(start_broker, *arguments)
            await eventually(lambda broker=broker: any("The database has no LISTEN" in line for line in broker.log))
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS)
            )
            rests.append(Rest(client, project))
        yield rests


async def test_a_process_looks_by_itself(database: Database, database_url: str) -> None:
    seen: list[str] = []

    async def poll() -> None:
        seen.append("heads")

    async with unheard(database_url) as url:
        deaf = Database(url)
        wake_ups = WakeUps(
            deaf,
            wake=lambda *where: seen.append(f"woken {where}"),
            drop=lambda _: None,
            access_changed=lambda: seen.append("access"),
            committed=lambda: seen.append("committed"),
            poll=poll,
        )
        listening = asyncio.create_task(wake_ups.run_listener())
        await eventually(lambda: seen.count("committed") == 2)
        await wake_ups.announce("projects/p/topics/t")  # which nobody hears, and which does not fail
        listening.cancel()
        await deaf.close()
    assert seen[:3] == ["woken (None, None)", "access", "committed"]
    [_, second, *_] = [place for place, what in enumerate(seen) if what == "committed"]
    assert seen[:second].count("heads") == 10  # it goes on looking until it is cancelled


@pytest.mark.slow
@pytest.mark.ci
async def test_what_one_publishes_or_gives_back_comes_through_the_other(two: list[Rest]) -> None:
    here, there = two
    await here.create_topic()
    await here.create_subscription(ackDeadlineSeconds=600)
    for number in range(3):
        [received] = await _published_while_waiting(here, there, str(number))
        assert text(received) == str(number)
        await here.modify_ack_deadline([received], 0)
        [again] = await there.pull(wait=True)
        assert text(again) == str(number)
        await there.acknowledge([again])


async def _published_while_waiting(here: Rest, there: Rest, words: str) -> list[dict[str, object]]:
    waiting = asyncio.create_task(there.pull(wait=True))
    await here.publish(words)
    return await waiting
