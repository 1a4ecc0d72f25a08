"""Poison messages do not stand before healthy ones, whichever way a consumer pulls (docs/decisions/0060)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import grpc
import pytest

from tests.conformance.test_transforms import udf
from tests.core.pulling.conftest import streams as streams  # a fixture
from tests.core.pulling.stream import Received, Streams
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.grpc import GrpcRest, channel_to

_THROWS, _HANGS = "throw new Error('poison')", "while (true) {}"
_NO_BACKOFF: Json = {"retryPolicy": {"minimumBackoff": "0s"}}
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
        if acked:
            settling.append(asyncio.ensure_future(stream.ack(acked)))
        if failed:
            settling.append(asyncio.ensure_future(stream.nack(failed)))

    stream.on_messages = settle
    settle(list(stream.received))
    await stream.until(
        lambda: wanted <= {each.text for each in stream.received} or len(stream.received) > 10 * len(wanted),
        seconds=60,
    )
    stream.on_messages = None
    delivered = [each.text for each in stream.received]
    await asyncio.gather(*settling)
    await stream.close()
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
    assert wanted <= set(delivered)
    assert len(delivered) <= most_for(wanted, 1)


async def test_urgent_poison_does_not_hold_up_what_is_less_urgent(rest: Rest, consume: Consume) -> None:
    """It always went first, and it was always there."""
    await rest.create_topic(extensions={"priorities": 2})
    await rest.create_subscription()
    await rest.publish(message("poison", {"broker-priority": "0"}), *HEALTHY[:40])
    wanted = set(HEALTHY[:40])
    delivered = await consume(1, wanted)
    assert wanted <= set(delivered)
    assert len(delivered) <= most_for(wanted, 1)


@pytest.mark.parametrize("extensions", [{"shards": 4}, {"priorities": 2}])
async def test_what_was_just_retried_is_redelivered_at_once_if_no_shard_has_anything_else(
    rest: Rest, extensions: Json
) -> None:
    await rest.create_topic(extensions=extensions)
    await rest.create_subscription()
    await rest.publish(message("poison", {"broker-priority": "0"}))
    for _ in range(6):
        received = await rest.pull(max_messages=1)
        assert [text(each) for each in received] == ["poison"]
        await rest.modify_ack_deadline(received, 0)


@pytest.mark.parametrize(
    ("fails", "fields"),
    [
        pytest.param(_THROWS, {}, id="throws"),
        pytest.param(_THROWS, _NO_BACKOFF, id="throws, no backoff"),
        pytest.param(_HANGS, {}, id="hangs"),
        pytest.param(_HANGS, _NO_BACKOFF, id="hangs, no backoff", marks=pytest.mark.slow),
    ],
)
async def test_messages_that_a_transform_fails_for_do_not_hold_up_the_others(
    rest: Rest, consume: Consume, fails: str, fields: Json
) -> None:
    transform = udf(f"if (message.data.startsWith('poison')) {{ {fails}; }} return message;")
    await rest.create_topic()
    await rest.create_subscription(messageTransforms=[transform], **fields)
    await rest.publish("poison", *HEALTHY[:8])
    delivered = await consume(1, set(HEALTHY[:8]))
    assert sorted(delivered) == sorted(HEALTHY[:8])


async def test_a_filter_that_matches_little_delays_neither_its_redeliveries_nor_other_subscriptions(
    rest: Rest,
) -> None:
    """A claim scans so far at most, and the next goes on there."""
    await rest.create_topic()
    await rest.create_subscription()
    await rest.create_subscription("filtered", filter='attributes.kind = "rare"')
    await rest.publish(message("again", {"kind": "rare"}))
    [again] = await rest.pull("filtered")
    for _ in range(25):
        await rest.publish(*HEALTHY * 10)
    await rest.publish(message("last", {"kind": "rare"}))
    await rest.modify_ack_deadline([again], 0, "filtered")
    assert [text(each) for each in await rest.pull("filtered", max_messages=1)] == ["again"]
    assert [text(each) for each in await rest.pull(max_messages=2)] == ["again", HEALTHY[0]]
    [last] = await eventually(lambda: rest.pull("filtered", max_messages=1))
    assert text(last) == "last"
