"""The gRPC surface: one row per RPC, in the order of Google's service definitions."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.front.grpc import health, reflection
from broker.front.grpc.call import StreamingCall, UnaryCall
from broker.front.grpc.handlers import acknowledge, publish, pull
from broker.front.grpc.resources import resource_handler
from broker.front.grpc.streaming_pull import streaming_pull
from broker.front.not_served import not_served
from broker.front.resource_calls import HOT

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
    def is_bounded(self) -> bool:
        """Whether it counts among the calls about resources."""
        return self.service in (PUBLISHER, SUBSCRIBER) and self.rpc not in HOT


PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"
SCHEMA_SERVICE = "google.pubsub.v1.SchemaService"
IAM_POLICY = "google.iam.v1.IAMPolicy"
HEALTH = "grpc.health.v1.Health"


def _refused(service: str, name: str) -> Method:
    rpc = Method(service, name).rpc

    async def refuse(call: UnaryCall, request: bytes) -> bytes:
        raise not_served(rpc)

    return Method(service, name, refuse)


def _resource(service: str, name: str) -> Method:
    """A method about resources."""
    return Method(service, name, resource_handler(Method(service, name).rpc))


METHODS = [
    _resource(PUBLISHER, "CreateTopic"),
    _resource(PUBLISHER, "UpdateTopic"),
    Method(PUBLISHER, "Publish", publish.publish),
    _resource(PUBLISHER, "GetTopic"),
    _resource(PUBLISHER, "ListTopics"),
    _resource(PUBLISHER, "ListTopicSubscriptions"),
    _resource(PUBLISHER, "ListTopicSnapshots"),
    _resource(PUBLISHER, "DeleteTopic"),
    _resource(PUBLISHER, "DetachSubscription"),
    _resource(SUBSCRIBER, "CreateSubscription"),
    _resource(SUBSCRIBER, "GetSubscription"),
    _resource(SUBSCRIBER, "UpdateSubscription"),
    _resource(SUBSCRIBER, "ListSubscriptions"),
    _resource(SUBSCRIBER, "DeleteSubscription"),
    Method(SUBSCRIBER, "ModifyAckDeadline", acknowledge.modify_ack_deadline),
    Method(SUBSCRIBER, "Acknowledge", acknowledge.acknowledge),
    Method(SUBSCRIBER, "Pull", pull.pull),
    Method(SUBSCRIBER, "StreamingPull", streaming=streaming_pull),
    _resource(SUBSCRIBER, "ModifyPushConfig"),
    _resource(SUBSCRIBER, "GetSnapshot"),
    _resource(SUBSCRIBER, "ListSnapshots"),
    _resource(SUBSCRIBER, "CreateSnapshot"),
    _resource(SUBSCRIBER, "UpdateSnapshot"),
    _resource(SUBSCRIBER, "DeleteSnapshot"),
    _resource(SUBSCRIBER, "Seek"),
    _refused(SCHEMA_SERVICE, "CreateSchema"),
    _refused(SCHEMA_SERVICE, "GetSchema"),
    _refused(SCHEMA_SERVICE, "ListSchemas"),
    _refused(SCHEMA_SERVICE, "ListSchemaRevisions"),
    _refused(SCHEMA_SERVICE, "CommitSchema"),
    _refused(SCHEMA_SERVICE, "RollbackSchema"),
    _refused(SCHEMA_SERVICE, "DeleteSchemaRevision"),
    _refused(SCHEMA_SERVICE, "DeleteSchema"),
    _refused(SCHEMA_SERVICE, "ValidateSchema"),
    _refused(SCHEMA_SERVICE, "ValidateMessage"),
    _refused(IAM_POLICY, "SetIamPolicy"),
    _refused(IAM_POLICY, "GetIamPolicy"),
    _refused(IAM_POLICY, "TestIamPermissions"),
    Method(HEALTH, "Check", health.check),
    Method(HEALTH, "Watch", streaming=health.watch),
    Method("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", streaming=reflection.server_reflection),
    Method(
        "grpc.reflection.v1alpha.ServerReflection",
        "ServerReflectionInfo",
        streaming=reflection.server_reflection,
    ),
]
