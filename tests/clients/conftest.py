"""Google's clients over gRPC, which know nothing of the broker but PUBSUB_EMULATOR_HOST (D2)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import PublisherOptions

from tests.clients.programs import install_node_client
from tests.fixtures.google import Google

ORDERED = PublisherOptions(enable_message_ordering=True)

MakePublisher = Callable[..., pubsub_v1.PublisherClient]
MakeSubscriber = Callable[[], pubsub_v1.SubscriberClient]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a release of the client or of protobuf deprecates is not our business."""
    for item in items:
        if "clients" in item.nodeid.split("/"):
            for warning in ("DeprecationWarning", "FutureWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"default::{warning}"))


@pytest.fixture(scope="session")
def node_client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with Google's client for Node; pytest's cache, if it is on, keeps it from one run to the next."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    directory = Path(cache.mkdir("node-client")) if cache else tmp_path_factory.mktemp("node-client")
    install_node_client(directory)
    return directory


@pytest.fixture
def emulator_host(broker_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of a program that uses a local Pub/Sub."""
    host = urlsplit(broker_url).netloc
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", host)
    return host


@pytest.fixture
def google(emulator_host: str, project: str) -> Iterator[Google]:
    publisher = pubsub_v1.PublisherClient(publisher_options=ORDERED)
    clients = Google(publisher, pubsub_v1.SubscriberClient(), project)
    yield clients
    clients.close()


@pytest.fixture
def make_publisher(emulator_host: str) -> Iterator[MakePublisher]:
    """Further publishers, with settings of their own."""
    with ExitStack() as stack:

        def make(*settings: Any, **options: Any) -> pubsub_v1.PublisherClient:
            publisher = pubsub_v1.PublisherClient(*settings, **options)
            stack.callback(publisher.transport.close)
            return publisher

        yield make


@pytest.fixture
def make_subscriber(emulator_host: str) -> Iterator[MakeSubscriber]:
    """Further subscribers, each with a connection of its own."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(pubsub_v1.SubscriberClient())
