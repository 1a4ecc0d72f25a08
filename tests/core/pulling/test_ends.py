"""Streams that the broker ends: the subscription is no longer what it was, or the broker stops."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import httpx
import pytest

from broker.net.http2.frames import Kind, window_update
from tests.cli.processes import faults
from tests.core.pulling.raw import STREAM, RawStreams, status_of
from tests.core.pulling.stream import Stream, Streams, numbered
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest

NOT_FOUND = 5  # gRPC's number of it

Change = Callable[[Streams], Awaitable[object]]


async def _delete(streams: Streams) -> None:
    await streams.rest.ok("DELETE", streams.rest.subscription())


async def _detach(streams: Streams) -> None:
    await streams.rest.ok("POST", f"{streams.rest.subscription()}:detach")


async def _push(streams: Streams) -> None:
    config = {"pushEndpoint": "http://127.0.0.1:9/"}
    await streams.rest.ok("POST", f"{streams.rest.subscription()}:modifyPushConfig", {"pushConfig": config})


CHANGES = pytest.mark.parametrize(
    ("change", "code"),
    [(_delete, "NOT_FOUND"), (_detach, "FAILED_PRECONDITION"), (_push, "FAILED_PRECONDITION")],
    ids=["deleted", "detached", "made a push subscription"],
)


async def _idle(streams: Streams) -> Stream:
    return await streams.waiting()


async def _full(streams: Streams) -> Stream:
    """Held back by its flow control."""
    await streams.rest.publish(*numbered(3))
    stream = await streams.open(max_outstanding_messages=2)
    await stream.take(2)
    return stream


@CHANGES
@pytest.mark.parametrize("state", [_idle, _full], ids=["idle", "full"])
async def test_a_change_of_the_subscription_ends_its_streams_at_once(
    streams: Streams, change: Change, code: str, state: Callable[[Streams], Awaitable[Stream]]
) -> None:
    await streams.subscribe()
    stream = await state(streams)
    await change(streams)
    ended = await stream.ended()
    assert ended.code == code
    assert "sub" in ended.message


@CHANGES
async def test_all_streams_of_the_subscription_end_and_no_others(
    streams: Streams, change: Change, code: str
) -> None:
    await streams.subscribe()
    await streams.subscribe("other")
    mine = [await streams.waiting(connection=n % 3) for n in range(12)]
    other = await streams.waiting("other")
    await change(streams)
    assert {(await stream.ended()).code for stream in mine} == {code}
    await streams.rest.publish("a")
    assert await other.take_texts() == ["a"]


async def test_a_client_that_reads_at_last_hears_that_its_subscription_is_gone(
    streams: Streams, raw_streams: RawStreams
) -> None:
    await streams.subscribe()
    name = streams.rest.subscription()
    peer = await raw_streams.open(window=20, subscription=name, stream_ack_deadline_seconds=60)
    await streams.rest.publish(*numbered(100))
    await peer.next_of(Kind.DATA, STREAM)
    await _delete(streams)
    peer.send(window_update(STREAM, 1_000_000))
    await peer.read_until(lambda f: f.ends_stream)
    assert status_of(peer) == NOT_FOUND


async def test_a_subscription_made_anew_has_streams_anew(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("lost")
    old = await streams.open()
    [lost] = await old.take()
    await _delete(streams)
    await old.ended()
    await streams.subscribe()
    new = await streams.waiting()
    await streams.rest.publish("a")
    assert await new.take_texts() == ["a"]
    await new.ack([lost])  # of the subscription that was deleted
    assert (await new.ended()).code == "INVALID_ARGUMENT"


async def test_a_subscription_that_can_be_pulled_again_has_streams_again(streams: Streams) -> None:
    await streams.subscribe()
    old = await streams.waiting()
    await _push(streams)
    await old.ended()
    await streams.rest.ok("POST", f"{streams.rest.subscription()}:modifyPushConfig", {"pushConfig": {}})
    new = await streams.waiting()
    await streams.rest.publish("a")
    await new.take()


async def test_the_deletion_of_the_topic_ends_no_stream(streams: Streams) -> None:
    """The subscription keeps its backlog, and new ones can be opened."""
    await streams.subscribe()
    await streams.rest.publish(*numbered(3))
    stream = await streams.open(max_outstanding_messages=1)
    await stream.take()
    await streams.rest.ok("DELETE", streams.rest.topic())
    await stream.ack(stream.received)
    await stream.take()
    await stream.round_trip()
    await (await streams.open()).take()


async def test_a_broker_that_stops_ends_its_streams_unavailable(
    start_broker: Callable[..., BrokerProcess], clone: Callable[[], AbstractContextManager[str]], project: str
) -> None:
    """At once, whatever their state; what they were given is not lost."""
    with clone() as database_url:
        broker = start_broker("--database-url", database_url, "--port", "0")
        async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
            streams = Streams(broker.url, Rest(client, project))
            await streams.subscribe()
            full = await _full(streams)
            idle = await streams.waiting(max_outstanding_messages=1, connection=1)
            await idle.take()
            broker.process.send_signal(signal.SIGTERM)
            assert {(await s.ended()).code for s in (idle, full)} == {"UNAVAILABLE"}
            assert await asyncio.to_thread(broker.process.wait, 8) == 0
            await streams.close()
        broker.stop()
        assert faults(broker) == []
        again = start_broker("--database-url", database_url, "--port", "0")
        async with httpx.AsyncClient(base_url=again.url, timeout=60, verify=NO_TLS) as client:
            rest = Rest(client, project)
            await rest.acknowledge([{"ackId": m.ack_id} for m in (*full.received, *idle.received)])
            assert await rest.drain() == []
            assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 0
