"""Poison messages do not stand before healthy ones, whichever way a consumer pulls (docs/decisions/0060)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import grpc
import pytest

from tests.fixtures.broker import Rest, message, text
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.streaming.conftest import streams as streams  # a fixture
from tests.streaming.stream import Received, Streams

HEALTHY = [f"healthy {number}" for number in range(100)]
WAYS = ["REST", "gRPC", "StreamingPull"]

# Consumes with so many messages at a time until all of these are acked, and returns what was delivered.
Consume = Callable[[int, set[str]], Awaitable[list[str]]]


@pytest.fixture
def grpc_rest(broker_url: str, project: str) -> Iterator[GrpcRest]:
    channel: grpc.Channel
    with channel_to(broker_url) as channel:
        yield GrpcRest(channel, project)


@pytest.fixture(params=WAYS)
def consume(request: pytest.FixtureRequest, rest: Rest, grpc_rest: GrpcRest, streams: Streams) -> Consume:
    async def by_pulls(max_messages: int, wanted: set[str]) -> list[str]:
        return await _pull(grpc_rest if request.param == "gRPC" else rest, max_messages, wanted)

    async def by_stream(max_messages: int, wanted: set[str]) -> list[str]:
        return await _stream(streams, max_messages, wanted)

    return by_stream if request.param == "StreamingPull" else by_pulls


def is_poison(body: str) -> bool:
    return body.startswith("poison")


def most_for(wanted: set[str], poison: int) -> int:
    """Twice what one delivery of each message takes."""
    return 2 * (len(wanted) + poison)


async def _pull(rest: Rest, max_messages: int, wanted: set[str]) -> list[str]:
    delivered: list[str] = []
    left = set(wanted)
    while left and len(delivered) <= 10 * len(wanted):
        received = await rest.pull(max_messages=max_messages)
        failed = [each for each in received if is_poison(text(each))]
        acked = [each for each in received if not is_poison(text(each))]
        if failed:
            await rest.modify_ack_deadline(failed, 0)
        if acked:
            await rest.acknowledge(acked)
        delivered += map(text, received)
        left -= set(map(text, acked))
    return delivered


async def _stream(streams: Streams, max_messages: int, wanted: set[str]) -> list[str]:
    stream = await streams.open(max_outstanding_messages=max_messages)
    settling: list[asyncio.Task[None]] = []

    def settle(came: list[Received]) -> None:
        acked = [each for each in came if not is_poison(each.text)]
        failed = [each for each in came if is_poison(each.text)]
        settling.append(asyncio.ensure_future(stream.ack(acked)))
        settling.append(asyncio.ensure_future(stream.nack(failed)))

    stream.on_messages = settle
    settle(list(stream.received))
    await stream.until(
        lambda: wanted <= {each.text for each in stream.received} or len(stream.received) > 10 * len(wanted),
        seconds=60,
    )
    delivered = [each.text for each in stream.received]
    await asyncio.gather(*settling)
    return delivered


@pytest.mark.parametrize("max_messages", [1, 10, 1000])
@pytest.mark.parametrize("poison", [1, 10, 100])
async def test_poison_takes_no_more_than_half_of_the_deliveries(
    rest: Rest, consume: Consume, poison: int, max_messages: int
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(*(f"poison {number}" for number in range(poison)), *HEALTHY)
    delivered = await consume(max_messages, set(HEALTHY))
    assert set(HEALTHY) <= set(delivered)
    assert len(delivered) <= most_for(set(HEALTHY), poison)


async def test_only_the_ordering_key_of_a_poison_message_waits(rest: Rest, consume: Consume) -> None:
    await rest.create_topic()
    await rest.create_subscription(enableMessageOrdering=True)
    for number in range(10):
        for name in ("poison", "a", "b", "c"):
            await rest.publish(message(f"{name} {number}", orderingKey=name))
    await rest.publish(*HEALTHY[:20])
    wanted = {f"{name} {number}" for number in range(10) for name in "abc"} | set(HEALTHY[:20])
    delivered = await consume(1, wanted)
    print(delivered)
    assert wanted <= set(delivered)
    assert len(delivered) <= most_for(wanted, 1)


async def test_poison_of_one_shard_does_not_hold_up_the_others(rest: Rest, consume: Consume) -> None:
    await rest.create_topic(extensions={"shards": 4})
    await rest.create_subscription()
    await rest.publish("poison")
    wanted = set(HEALTHY[:40])
    for body in HEALTHY[:40]:
        await rest.publish(body)
    delivered = await consume(1, wanted)
    print(delivered)
    assert wanted <= set(delivered)
    print(delivered)
    assert len(delivered) <= most_for(wanted, 4)
