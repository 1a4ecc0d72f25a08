"""Quotas of streams, and of what they get (E4)."""

import asyncio

from tests.core.pulling.stream import Streams
from tests.fixtures.broker import Rest, eventually


async def test_a_stream_is_slowed_down_to_the_rate_and_not_ended(streams: Streams, rest: Rest) -> None:
    await streams.subscribe()
    await rest.publish(*["x"] * 100)
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"subscribeMessages": 40}})
    came: list[int] = []
    stream = await streams.open(acks_at_once=True, on_messages=lambda messages: came.append(len(messages)))
    await stream.take(100, seconds=30)
    assert max(came) <= 40  # a second's worth


async def test_the_opening_of_a_stream_is_a_request(streams: Streams, rest: Rest) -> None:
    await streams.subscribe()
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"subscribeRequests": 0}})
    stream = await streams.open()
    ended = await stream.ended()
    assert ended.code == "RESOURCE_EXHAUSTED"
    assert "subscribeRequests" in ended.message


async def test_streams_beyond_the_connections_of_a_project_are_refused_and_there_is_capacity_once_one_ends(
    streams: Streams, rest: Rest
) -> None:
    await streams.subscribe()
    before = await streams.waiting()
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"connections": 2}})
    await streams.waiting()
    ended = await (await streams.open()).ended()
    assert ended.code == "RESOURCE_EXHAUSTED"
    assert "connections" in ended.message
    assert "is at 2 of 2 (connections)" in ended.message
    error, _ = await rest.error("POST", f"{rest.subscription()}:pull", {"maxMessages": 1})
    assert error == "RESOURCE_EXHAUSTED"
    await rest.ok("POST", f"{rest.subscription()}:pull", {"maxMessages": 1, "returnImmediately": True})
    before.cancel()
    await eventually(lambda: _connections(rest, 1))
    await streams.open()
    await eventually(lambda: _connections(rest, 2))


async def test_a_pull_that_waits_is_a_connection_as_long(streams: Streams, rest: Rest) -> None:
    await streams.subscribe()
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"connections": 1}})
    pulling = asyncio.create_task(rest.pull(wait=True))
    await eventually(lambda: _connections(rest, 1))
    ended = await (await streams.open()).ended()
    assert "is at 1 of 1 (connections)" in ended.message
    await rest.publish("for the pull")
    assert len(await pulling) == 1
    await streams.open()
    await eventually(lambda: _connections(rest, 1))


async def _connections(rest: Rest, number: int) -> bool:
    reported = await rest.ok("GET", f"{rest.project}/quotas")
    return bool({one["quota"]: one["usage"] for one in reported["quotas"]}["connections"] == number)
