"""What is compared: a server together with what its load goes through."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.bench import fresh_place
from benchmarks.clients.client import Client, client_class
from benchmarks.generators import run_loads
from benchmarks.load_spec import Spec
from benchmarks.servers import Broker, Server
from benchmarks.throughput import drain_specs, fill, publish_specs
from benchmarks.wire import LoadFailed

_MESSAGE_BYTES = 75
_PREPARED_BATCH = 1_000  # how a backlog is filled


class System(ABC):
    """A server under test, and the loads for it.  Both contexts raise LoadFailed."""

    name: str
    server: Server
    backlog_per_second: int  # messages to drain per second of load; a faster system ends early

    @abstractmethod
    def publishing(self, *, batch: int, at_once: int, seconds: float) -> AbstractContextManager[list[Spec]]:
        """Two processes that publish to a new topic, `at_once` batches in flight between them."""

    @abstractmethod
    def draining(self, *, consumers: int, seconds: float) -> AbstractContextManager[list[Spec]]:
        """So many processes that drain a backlog, which is there when the block begins."""


class BrokerBySockets(System):
    """Ours, under the load of the other measures."""

    name = "broker"
    backlog_per_second = 100_000

    def __init__(self, broker: Broker) -> None:
        self.server = broker

    @contextmanager
    def publishing(self, *, batch: int, at_once: int, seconds: float) -> Iterator[list[Spec]]:
        with fresh_place(self.server) as place:
            yield publish_specs(
                self.server, place, batch=batch, processes=2, connections=at_once // 2, seconds=seconds, timed=True
            )

    @contextmanager
    def draining(self, *, consumers: int, seconds: float) -> Iterator[list[Spec]]:
        with fresh_place(self.server) as place:
            fill(self.server, place, int(seconds * self.backlog_per_second))
            yield drain_specs(self.server, place, consumers, seconds)


class ThroughClient(System):
    """A server through a Python client.

    Where messages stay after they are acked, one backlog serves all rounds, each with a new subscription: to
    fill it takes NATS longer than all else.  `kept` has the topics with such a backlog, by the server's directory
    and the number of messages.
    """

    def __init__(
        self,
        name: str,
        server: Server,
        client: str,
        backlog_per_second: int,
        kept: dict[tuple[Path, int], str],
    ) -> None:
        self.name, self.server, self.backlog_per_second = name, server, backlog_per_second
        self._client_name, self._client, self._kept = client, client_class(client), kept

    @contextmanager
    def publishing(self, *, batch: int, at_once: int, seconds: float) -> Iterator[list[Spec]]:
        topic = self._new_topic()
        self._call(topic, lambda client: client.create_subscription(_new_name(), 1))
        yield [self._publish_spec(topic, batch=batch, connections=at_once // 2, seconds=seconds) for _ in range(2)]
        self._call(topic, lambda client: client.delete_topic())

    @contextmanager
    def draining(self, *, consumers: int, seconds: float) -> Iterator[list[Spec]]:
        subscription = _new_name()
        topic = self._fill(subscription, consumers, int(seconds * self.backlog_per_second))
        spec = Spec(
            role="client_drain",
            client=self._client_name,
            host=self.server.host,
            port=self.server.port,
            topic=topic,
            subscription=subscription,
            seconds=seconds,
        )
        yield [spec] * consumers
        if not self._client.keeps_messages:
            self._call(topic, lambda client: client.delete_topic())

    def _fill(self, subscription: str, consumers: int, count: int) -> str:
        """A topic with so many messages for the subscription."""
        kept = self._kept.get((self.server.directory, count))
        topic = kept or self._new_topic()
        self._call(topic, lambda client: client.create_subscription(subscription, consumers))
        if not kept:
            run_loads([self._publish_spec(topic, batch=_PREPARED_BATCH, count=count // 2)] * 2)
            if self._client.keeps_messages:
                self._kept[self.server.directory, count] = topic
        return topic

    def _publish_spec(
        self, topic: str, *, batch: int, connections: int = 1, seconds: float = 0, count: int = 0
    ) -> Spec:
        return Spec(
            role="client_publish",
            client=self._client_name,
            host=self.server.host,
            port=self.server.port,
            topic=topic,
            batch=batch,
            size=_MESSAGE_BYTES,
            connections=connections,
            seconds=seconds,
            count=count,
            timed=True,
        )

    def _new_topic(self) -> str:
        topic = _new_name()
        self._call(topic, lambda client: client.create_topic())
        return topic

    def _call(self, topic: str, use: Callable[[Client], Awaitable[None]]) -> None:
        """Use a client of this process's own, for what is not measured."""

        async def call() -> None:
            client = self._client(self.server.host, self.server.port, topic)
            await client.open()
            await use(client)
            await client.close()

        failures: tuple[type[Exception], ...] = (*self._client.errors, OSError, TimeoutError)
        try:
            asyncio.run(call())
        except failures as error:
            raise LoadFailed(f"{self._client_name}: {error!r}") from error


def _new_name() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"
