"""The loads that measure other brokers do what they count; those that are not installed here are skipped."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

import pytest

from benchmarks.clients.client import client_class
from benchmarks.generators import run_loads
from benchmarks.load_spec import Spec
from benchmarks.peer_servers import JetStream, Peer, RabbitMq, RedisStreams, lacks
from benchmarks.peer_systems import ThroughClient
from benchmarks.report import Row, table

_SECONDS = 0.2


@pytest.fixture(scope="module", params=[JetStream, RabbitMq, RedisStreams], ids=lambda peer: peer.client)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    if reason := lacks(request.param):
        pytest.skip(reason)
    server: Peer = request.param()
    server.start()
    yield server
    server.stop()


async def _publish_and_receive(client: str, host: str, port: int) -> None:
    opened = client_class(client)(host, port, "orders", connections=2)
    await opened.open()
    await opened.create_topic()
    await opened.create_subscription("mine", 1)
    await opened.publish([b"lone"])
    await opened.publish([b"one of many"] * 99)
    await opened.subscribe("mine")
    assert [await opened.receive(60), await opened.receive(40)] == [60, 40]
    await opened.settle()
    assert await opened.receive(10) == 0
    await opened.delete_topic()
    await opened.close()


async def test_a_peer_gives_out_what_was_published_once(peer: Peer) -> None:
    await _publish_and_receive(peer.client, peer.host, peer.port)


async def test_so_does_ours_through_a_client(broker_url: str) -> None:
    pytest.importorskip("aiohttp")
    url = urlsplit(broker_url)
    await _publish_and_receive("aiohttp", url.hostname or "", url.port or 0)


@pytest.mark.parametrize("batch", [1, 100])
def test_a_publish_load_counts_and_times_every_publish(peer: Peer, batch: int) -> None:
    results = _run(_system(peer).publishing(batch=batch, at_once=4, seconds=_SECONDS))
    for published, times in results:
        assert published >= 2 * batch  # two at once from each of two processes
        assert len(times) * batch == published


def test_a_backlog_is_drained_once_by_two_consumers_and_again_for_the_next_round(peer: Peer) -> None:
    system = _system(peer)
    for _ in range(2):
        results = _run(system.draining(consumers=2, seconds=_SECONDS))
        assert 0 < sum(messages for messages, _ in results) <= _SECONDS * peer.backlog_per_second


def test_figures_of_peers_have_columns_and_columns_without_figures_are_left_out() -> None:
    drawn = table([Row(measure="publish", unit="ms", ours=1.0, peers={"Other": 20.0}), Row(measure="x", unit="y")])
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in drawn.splitlines()] == [
        ["measure", "unit", "ours", "Other"],
        ["-" * 9, "-" * 6, "-" * 6, "-" * 7],
        ["publish", "ms", "1.00", "20.0"],
        ["x", "y", "", ""],
    ]


def _system(peer: Peer) -> ThroughClient:
    return ThroughClient(peer.name, peer, peer.client, peer.backlog_per_second, {})


def _run(loads: AbstractContextManager[list[Spec]]) -> list[tuple[int, list[float]]]:
    with loads as specs:
        return [(result.messages, result.publish_seconds) for result in run_loads(specs)]
