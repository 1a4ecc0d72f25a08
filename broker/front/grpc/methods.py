"""The gRPC surface: one row per RPC.  Those about resources have theirs in front/resources/rpcs.py."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from broker.front.generated.messages import full_name, request_of
from broker.front.grpc.call import StreamingCall, UnaryCall
from broker.front.grpc.handlers import acknowledge, health, publish, pull, reflection
from broker.front.grpc.handlers.streaming_pull import streaming_pull
from broker.front.grpc.resources import resource_handler
from broker.front.resources.rpcs import RPCS

Unary = Callable[[UnaryCall, bytes], Awaitable[bytes]]
Streaming = Callable[[StreamingCall], Awaitable[None]]


class Method(NamedTuple):
    """Exactly one of the handlers is given."""

    service: str
    name: str
    unary: Unary | None = None
    streaming: Streaming | None = None

    @property
    def path(self) -> bytes:
        """The :path of its calls."""
        return f"/{self.service}/{self.name}".encode()

    @property
    def rpc(self) -> str:
        """As the REST routes call it: "Publisher.Publish"."""
        return f"{self.service.rpartition('.')[2]}.{self.name}"

    @property
    def request_class(self) -> Any:
        """Of Google's methods, protobuf's class of their requests; None: the requests of others have no lists."""
        return request_of(self.rpc) if self.service.startswith("google.") else None

    @property
    def is_bounded(self) -> bool:
        """Whether it counts among the calls about resources."""
        return self.rpc in _RESOURCE_RPCS


PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"
HEALTH = "grpc.health.v1.Health"

_RESOURCE_RPCS = {rpc.name for rpc in RPCS}


def _resources() -> Iterator[Method]:
    """The methods about resources; one that REST serves at several paths is one."""
    for rpc in {rpc.name: rpc for rpc in RPCS}.values():
        service, _, name = rpc.name.partition(".")
        yield Method(full_name(service), name, resource_handler(rpc))


METHODS = [
    *_resources(),
    Method(PUBLISHER, "Publish", publish.publish),
    Method(SUBSCRIBER, "ModifyAckDeadline", acknowledge.modify_ack_deadline),
    Method(SUBSCRIBER, "Acknowledge", acknowledge.acknowledge),
    Method(SUBSCRIBER, "Pull", pull.pull),
    Method(SUBSCRIBER, "StreamingPull", streaming=streaming_pull),
    Method(HEALTH, "Check", health.check),
    Method(HEALTH, "Watch", streaming=health.watch),
    Method("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", streaming=reflection.server_reflection),
    Method(
        "grpc.reflection.v1alpha.ServerReflection",
        "ServerReflectionInfo",
        streaming=reflection.server_reflection,
    ),
]
