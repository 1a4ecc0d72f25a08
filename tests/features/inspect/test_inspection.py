"""Looking at subscriptions over REST; extensions (F3)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.process.tails import MAX_TAILS_OF_PROJECT
from tests.core.pulling.stream import Streams
from tests.fixtures.broker import PATIENCE_SECONDS, Json, Rest, eventually, message, text
from tests.fixtures.in_process import own_broker, running_in_process


async def test_who_pulls_and_streams_is_told_with_client_address_and_what_each_has(
    database_url: str, project: str
) -> None:
    broker = Broker(AppConfig(database_url=database_url))
    async with running_in_process(broker) as client:
        rest, streams = Rest(client, project), Streams(str(client.base_url), Rest(client, project))
        await rest.create_topic()
        await rest.create_subscription()
        await rest.publish("one", "two")
        [pulled] = await rest.pull(max_messages=1)
        stream = await streams.open(client_id="worker-7")
        [streamed] = await stream.take(1)
        await rest.acknowledge([pulled])
        await broker.claiming.readers.run_once()
        answer = await rest.ok("GET", f"{rest.subscription()}/consumers")
        await streams.close()
    assert answer["totalSize"] == 2
    by_kind = {consumer["kind"]: consumer for consumer in answer["consumers"]}
    assert (by_kind["STREAMING_PULL"]["clientId"], by_kind["STREAMING_PULL"]["outstandingMessages"]) == (
        "worker-7",
        1,
    )
    assert {consumer["address"] for consumer in answer["consumers"]} == {"127.0.0.1"}
    assert by_kind["PULL"]["outstandingMessages"] == 0
    assert "ackLatencyP99" in by_kind["PULL"]
    assert streamed.text == "two"


async def test_the_messages_of_a_subscription_are_told_with_their_bodies_and_states(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    first, second = await rest.publish(message("one", {"a": "b"}), "two")
    await rest.pull(max_messages=1)
    path = f"{rest.subscription()}/messages"
    [out, waiting] = (await rest.ok("GET", path))["messages"]
    assert (text(out), out["message"]["attributes"], out["message"]["messageId"]) == ("one", {"a": "b"}, first)
    assert (out["state"], out["deliveryAttempt"], "ackDeadline" in out) == ("OUTSTANDING", 1, True)
    assert (waiting["state"], waiting["message"]["messageId"]) == ("WAITING", second)
    page = await rest.ok("GET", path, params={"pageSize": 1})
    next_page = await rest.ok("GET", path, params={"pageSize": 1, "pageToken": page["nextPageToken"]})
    assert [text(m) for m in (*page["messages"], *next_page["messages"])] == ["one", "two"]
    assert (await rest.ok("GET", path, params={"state": "waiting", "contains": "one"}))["messages"] == []
    code, why = await rest.error("GET", path, params={"state": "lost"})
    assert (code, "state=lost" in why) == ("INVALID_ARGUMENT", True)


class Events:
    """A tail, as its reader sees it."""

    def __init__(self, response: httpx.Response) -> None:
        self.lines = response.aiter_lines()

    async def next(self) -> tuple[str, Json]:
        """The next event's kind and data; comments are passed by."""
        kind = ""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self.lines:
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    return kind, json.loads(value)
        raise EOFError


@asynccontextmanager
async def tailing(
    rest: Rest, name: str = "", headers: dict[str, str] | None = None, **params: str
) -> AsyncIterator[Events]:
    """From when it has begun; of the topic, unless a name is given."""
    url = f"/v1/{name or rest.topic()}:tail"
    async with rest.client.stream("GET", url, params=params, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        events = Events(response)
        assert await anext(events.lines) == ": alive"
        yield events


async def test_a_tail_tells_what_is_published_from_then_on_as_far_as_its_filter_matches(rest: Rest) -> None:
    await rest.create_topic()
    await rest.publish("before")
    async with tailing(rest) as all_of_it, tailing(rest, filter='attributes.env = "prod"') as filtered:
        [first] = await rest.publish("one")
        kind, reported = await all_of_it.next()
        assert (kind, text(reported), reported["messageId"]) == ("message", "one", first)
        await rest.publish(message("two", {"env": "prod"}), "three")
        assert [text((await all_of_it.next())[1]) for _ in range(2)] == ["two", "three"]
        kind, reported = await filtered.next()
        assert (text(reported), reported["attributes"]) == ("two", {"env": "prod"})


async def test_tails_are_bounded_and_those_whose_readers_have_gone_make_capacity(rest: Rest) -> None:
    await rest.create_topic()
    async with AsyncExitStack() as stack:
        for number in range(MAX_TAILS_OF_PROJECT):
            await stack.enter_async_context(tailing(rest, filter=f"attributes:a{number}"))
        await stack.enter_async_context(tailing(rest, filter="attributes:a0"))  # counts with the first one
        code, why = await rest.error("GET", f"{rest.topic()}:tail")
        assert (code, "10 of a project" in why) == ("RESOURCE_EXHAUSTED", True)

    async def has_capacity() -> bool:
        try:
            async with tailing(rest):
                return True
        except AssertionError:
            return False

    assert await eventually(has_capacity)


async def test_a_tail_that_cannot_be_is_refused_as_any_call(rest: Rest) -> None:
    await rest.create_topic()
    assert (await rest.error("GET", f"{rest.topic('missing')}:tail"))[0] == "NOT_FOUND"
    code, _ = await rest.error("GET", f"{rest.topic()}:tail", params={"filter": "no filter"})
    assert code == "INVALID_ARGUMENT"


async def test_tails_end_when_the_broker_stops_and_nothing_of_them_is_left(database_url: str, project: str) -> None:
    async with own_broker(database_url, project=project) as (broker, rest):
        await rest.create_topic()
        async with tailing(rest) as events:
            assert broker.claiming.tails.watched_shards()
            broker.stop_waiting()
            with pytest.raises(EOFError):
                await events.next()
        await eventually(lambda: not broker.claiming.tails.watched_shards())
