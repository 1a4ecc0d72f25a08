"""Quotas of what a stream gets (E4)."""

from tests.fixtures.broker import Rest
from tests.streaming.stream import Streams


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
