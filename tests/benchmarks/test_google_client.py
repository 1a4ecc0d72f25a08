"""The loads through Google's Python client count what they do; the broker without gRPC serves REST alone."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from benchmarks.bench import Place, fresh_place
from benchmarks.generators import run_loads
from benchmarks.load_spec import Result, Spec
from benchmarks.servers import Broker, PlainHttpBroker
from benchmarks.throughput import fill
from tests.fixtures.grpc import channel_to

pytestmark = [pytest.mark.slow, pytest.mark.ci]

_COUNT = 2_000


@pytest.fixture
def server(broker_url: str) -> Broker:
    """The session's broker, as benchmarks see theirs."""
    seen, url = Broker(), urlsplit(broker_url)
    seen.host, seen.port = url.hostname or "", url.port or 0
    return seen


@pytest.fixture
def place(server: Broker) -> Iterator[Place]:
    with fresh_place(server) as fresh:
        yield fresh


def _result(server: Broker, place: Place, role: str, *, seconds: float = 20.0, **options: float) -> Result:
    names = {"topic": place.topic, "subscription": place.subscriptions[0]}
    spec = Spec(role=role, host=server.host, port=server.port, seconds=seconds, **names, **options)  # type: ignore[arg-type]
    [result] = run_loads([spec])
    assert result.ended > result.started
    return result


def test_what_is_published_is_there_and_a_pull_load_acks_it_all(server: Broker, place: Place) -> None:
    published = _result(server, place, "google_publish", count=_COUNT)
    assert published.messages == _COUNT
    first = 1  # opened the connection
    assert _result(server, place, "google_pull", count=_COUNT + first).messages == _COUNT + first


def test_a_streaming_load_counts_acks(server: Broker, place: Place) -> None:
    fill(server, place, _COUNT)
    assert _result(server, place, "google_streaming", count=_COUNT).messages == _COUNT


def test_a_latency_load_times_every_message(server: Broker, place: Place) -> None:
    result = _result(server, place, "google_latency", seconds=0.5, rate=100.0)
    assert len(result.pull_seconds) == result.messages == 50
    assert min(result.pull_seconds) > 0


def test_the_broker_without_grpc_serves_rest_alone() -> None:
    server = PlainHttpBroker()
    server.start()
    try:
        url = f"http://{server.host}:{server.port}"
        assert httpx.put(f"{url}/v1/projects/bench/topics/topic", json={}).status_code == 200
        with channel_to(url) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/google.pubsub.v1.Publisher/ListTopics")(b"", timeout=10)
    finally:
        server.stop()
