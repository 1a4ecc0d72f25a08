"""What every Python client does for a load process, and which there are."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import ClassVar

ANSWER_SECONDS = 60.0  # longer than any answer takes that is worth measuring, as in wire.py

# Loaded only where they are used: most of them belong to the optional dependencies `peers`.
_CLASSES: Mapping[str, str] = {
    "aiohttp": "benchmarks.clients.rest:RestClient",
    "nats-py": "benchmarks.clients.jetstream:JetStreamClient",
    "pika": "benchmarks.clients.rabbitmq:RabbitMqClient",
    "redis-py": "benchmarks.clients.redis_streams:RedisStreamsClient",
}


class Client(ABC):
    """One process's connection, or pool, to one topic of a server; names have letters, digits and dashes.

    created ──open──► open ──close──► closed; all other methods want it open.  They raise one of `errors`, an
    OSError or a TimeoutError if the server does not do its part.
    """

    errors: ClassVar[tuple[type[Exception], ...]]
    keeps_messages: ClassVar[bool]
    """A new subscription gets what was published before it, also if others have acked it."""
    fills_batches: ClassVar[bool]
    """`receive` returns as many as asked until the backlog ends, and what comes short has waited for more."""

    def __init__(self, host: str, port: int, topic: str, connections: int = 1) -> None:
        self._host, self._port, self._topic, self._connections = host, port, topic, connections

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def create_topic(self) -> None:
        """The topic, and what else it needs so that published messages are kept for its subscribers."""

    @abstractmethod
    async def create_subscription(self, name: str, consumers: int) -> None:
        """A subscription, to be drained by so many processes."""

    @abstractmethod
    async def delete_topic(self) -> None:
        """The topic with its messages and subscriptions."""

    @abstractmethod
    async def publish(self, bodies: Sequence[bytes]) -> None:
        """Publish messages together; returns when the server has answered for every one.  For several tasks."""

    @abstractmethod
    async def subscribe(self, name: str) -> None:
        """Get ready to receive from a subscription."""

    @abstractmethod
    async def receive(self, most: int) -> int:
        """Receive up to so many messages, decode and ack them; 0 if none comes within a moment.  For one task."""

    async def settle(self) -> None:
        """Wait until the server has dealt with the acks that got no answer of their own."""
        return

    @abstractmethod
    async def close(self) -> None: ...


def client_class(name: str) -> type[Client]:
    """Raises ImportError if its library is not installed, KeyError if there is no such client."""
    module, _, attribute = _CLASSES[name].partition(":")
    found: type[Client] = getattr(import_module(module), attribute)
    return found
