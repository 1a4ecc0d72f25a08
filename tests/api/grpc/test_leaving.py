"""Callers that leave, and brokers that stop."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import grpc
import pytest

from broker.api.generated import messages
from broker.net.http2.frames import Code, Flag, Kind, frame, reset
from tests.api.grpc.wire import REQUEST, Peer, packed
from tests.fixtures.broker import PATIENCE_SECONDS, BrokerProcess, Rest
from tests.fixtures.grpc import GrpcRest, channel_to

PULL = [(n, b"/google.pubsub.v1.Subscriber/Pull" if n == b":path" else v) for n, v in REQUEST]


@pytest.fixture
def over_grpc(broker_url: str, rest: Rest) -> Iterator[GrpcRest]:
    with channel_to(broker_url) as channel:
        yield GrpcRest(channel, rest.project)


async def _peer(url: str, **settings: int) -> Peer:
    parts = urlsplit(url)
    peer = Peer(*await asyncio.open_connection(parts.hostname, parts.port))
    peer.greet(**settings)
    return peer


def _pull(peer: Peer, stream_id: int, subscription: str, max_messages: int = 10) -> None:
    request = messages.PullRequest(subscription=subscription, max_messages=max_messages).SerializeToString()
    body = frame(Kind.DATA, Flag.END_STREAM, stream_id, packed(request))
    peer.send(peer.headers(stream_id, PULL), body)


async def _parked(peer: Peer) -> None:
    """A pull that was sent is taken to wait; earlier is no error, only a weaker test."""
    assert await peer.alive()
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("how", ["reset", "lost"])
async def test_a_pull_whose_caller_left_while_it_waited_takes_no_message(
    rest: Rest, broker_url: str, how: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    peer = await _peer(broker_url)
    _pull(peer, 1, rest.subscription())
    await _parked(peer)
    if how == "reset":
        peer.send(reset(1, Code.CANCEL))
        assert await peer.alive()
    else:
        peer.writer.transport.abort()
        await asyncio.sleep(0.1)
    await rest.publish("for somebody else")
    assert len(await rest.pull()) == 1
    peer.writer.close()


@pytest.mark.parametrize("how", ["reset", "lost"])
async def test_messages_that_the_caller_did_not_take_are_there_for_others_at_once(
    rest: Rest, broker_url: str, how: str
) -> None:
    """A7: what was claimed and never handed to the socket is released, and the attempt not counted."""
    await rest.create_topic()
    await rest.create_subscription(deadLetterPolicy={"deadLetterTopic": rest.topic()}, ackDeadlineSeconds=600)
    await rest.publish("a", "b")
    peer = await _peer(broker_url, s4=20)  # INITIAL_WINDOW_SIZE: the answer is longer
    _pull(peer, 1, rest.subscription())
    await peer.next_of(Kind.DATA, 1)
    assert await rest.pull() == []
    if how == "reset":
        peer.send(reset(1, Code.CANCEL))
    else:
        peer.writer.transport.abort()
    async with asyncio.timeout(PATIENCE_SECONDS):
        received = await rest.pull(wait=True)
    assert len(received) == 2
    assert {m["deliveryAttempt"] for m in received} == {1}
    peer.writer.close()


async def test_a_cancelled_pull_of_the_client_library_takes_no_message(rest: Rest, over_grpc: GrpcRest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    pull = asyncio.ensure_future(over_grpc.pull(wait=True))
    await asyncio.sleep(0.3)
    pull.cancel()
    await asyncio.gather(pull, return_exceptions=True)
    await asyncio.sleep(0.1)  # the cancellation is on its way
    await rest.publish("for somebody else")
    assert len(await rest.pull()) == 1


async def test_a_pull_waits_for_its_first_message(rest: Rest, over_grpc: GrpcRest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    pull = asyncio.ensure_future(over_grpc.pull(wait=True))
    await asyncio.sleep(0.3)
    await rest.publish("at last")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert len(await pull) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_broker_that_stops_answers_what_is_in_flight(
    start_broker: Callable[..., BrokerProcess], clone: Callable[..., Iterator[str]], workers: str
) -> None:
    with ExitStack() as stack:
        database_url = stack.enter_context(clone())  # type: ignore[arg-type,var-annotated]
        broker = start_broker("--database-url", database_url, "--port", "0", "--workers", workers)
        over_grpc = GrpcRest(stack.enter_context(channel_to(broker.url)), "projects/stopping")
        await over_grpc.create_topic()
        await over_grpc.create_subscription()
        idle = await _peer(broker.url)
        assert await idle.alive()
        pull = asyncio.ensure_future(over_grpc.pull(wait=True))
        await asyncio.sleep(0.5)
        broker.process.send_signal(signal.SIGTERM)
        assert await pull == []
        goaway = await idle.next_of(Kind.GOAWAY)
        assert goaway.payload[4:8] == b"\0\0\0\0"  # NO_ERROR
        assert await asyncio.to_thread(broker.process.wait, PATIENCE_SECONDS) == 0
        broker.stop()
        assert not [line for line in broker.log if "Traceback" in line or " ERROR " in line], broker.log
        idle.writer.close()


async def test_a_client_goes_on_with_a_broker_that_was_started_again(
    start_broker: Callable[..., BrokerProcess], clone: Callable[..., Iterator[str]]
) -> None:
    with ExitStack() as stack:
        database_url = stack.enter_context(clone())  # type: ignore[arg-type,var-annotated]
        broker = start_broker("--database-url", database_url, "--port", "0")
        channel = stack.enter_context(channel_to(broker.url))
        over_grpc = GrpcRest(channel, "projects/again")
        await over_grpc.create_topic()
        broker.stop()
        port = str(urlsplit(broker.url).port)
        start_broker("--database-url", database_url, "--port", port)
        request = messages.GetTopicRequest(topic=over_grpc.topic()).SerializeToString()
        get = channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")
        answer = await asyncio.to_thread(get, request, timeout=30, wait_for_ready=True)
        assert messages.Topic.FromString(answer).name == over_grpc.topic()
        assert isinstance(channel, grpc.Channel)
