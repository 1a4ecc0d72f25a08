"""What is urgent passes what waits, on streams that are open (J4)."""

import pytest

from tests.core.pulling.stream import Received, Stream, Streams, numbered
from tests.fixtures.broker import message

_MANY, _SOON = 300, 100  # messages that wait; of those, at most, that go before what is urgent while it is told of


async def _waiting(streams: Streams, **fields: object) -> tuple[Stream, list[Received]]:
    """A stream that has one of many messages, and takes no more until that is settled."""
    await streams.rest.create_topic(extensions={"priorities": 2})
    await streams.subscribe(**fields)
    await streams.rest.publish(*numbered(_MANY))
    stream = await streams.open(max_outstanding_messages=1)
    return stream, await stream.take()


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_it_comes_once_there_is_capacity(streams: Streams, exactly_once: bool) -> None:
    stream, came = await _waiting(streams, enableExactlyOnceDelivery=exactly_once)
    await streams.rest.publish(message("urgent", {"broker-priority": "0"}))
    passed = 0
    while came[0].text != "urgent":
        passed += 1
        await stream.ack(came)
        came = await stream.take()
    assert passed <= _SOON
    assert stream.most_outstanding == 1
    await stream.ack(came)
    assert (await stream.take_texts()) == [f"m{passed}"]  # and the others go on where they were


async def test_what_is_nacked_comes_again_before_what_waits(streams: Streams) -> None:
    stream, came = await _waiting(streams)
    await streams.rest.publish(message("urgent", {"broker-priority": "0"}))
    while came[0].text != "urgent":
        await stream.ack(came)
        came = await stream.take()
    await stream.nack(came)  # nacked once more within a second, it would wait for the others
    passed, came = 0, await stream.take()
    while came[0].text != "urgent":
        passed += 1
        await stream.ack(came)
        came = await stream.take()
    assert passed <= _SOON


async def test_a_stream_that_opens_has_it_first(streams: Streams) -> None:
    await streams.rest.create_topic(extensions={"priorities": 3})
    await streams.subscribe()
    await streams.rest.publish(*numbered(20), *(message(f"u{n}", {"broker-priority": "0"}) for n in range(3)))
    stream = await streams.open(max_outstanding_messages=2)
    order: list[str] = []
    for _ in range(12):
        came = await stream.take()
        order += [each.text for each in came]
        await stream.ack(came)
    assert order[:3] == ["u0", "u1", "u2"]
    assert order[3:] == numbered(9)
