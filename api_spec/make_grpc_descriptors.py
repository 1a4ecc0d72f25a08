"""Writes broker/api/generated/descriptors.binpb: the messages and services that the gRPC door speaks.

Run it (`make grpc-descriptors`) when the reviewed google-cloud-pubsub changes; a test holds the file against it.
It takes the definitions out of the packages that clients use: the broker needs neither these packages nor protoc.
"""

from collections.abc import Iterator
from pathlib import Path

from google.iam.v1 import iam_policy_pb2, options_pb2, policy_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.pubsub_v1.types import pubsub, schema
from google.rpc import error_details_pb2, status_pb2
from google.type import expr_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

TARGET = Path(__file__).parents[1] / "broker" / "api" / "generated" / "descriptors.binpb"
PUBSUB, SCHEMA = "google/pubsub/v1/pubsub.proto", "google/pubsub/v1/schema.proto"
REFLECTION = "grpc/reflection/v1alpha/reflection.proto"
EMPTY = "google/protobuf/empty.proto"

# RPC -> response, of Google's reference.  A request is named as its RPC with "Request", unless it is in REQUESTS.
PUBLISHER = {
    "CreateTopic": "Topic",
    "UpdateTopic": "Topic",
    "Publish": "PublishResponse",
    "GetTopic": "Topic",
    "ListTopics": "ListTopicsResponse",
    "ListTopicSubscriptions": "ListTopicSubscriptionsResponse",
    "ListTopicSnapshots": "ListTopicSnapshotsResponse",
    "DeleteTopic": "",
    "DetachSubscription": "DetachSubscriptionResponse",
}
SUBSCRIBER = {
    "CreateSubscription": "Subscription",
    "GetSubscription": "Subscription",
    "UpdateSubscription": "Subscription",
    "ListSubscriptions": "ListSubscriptionsResponse",
    "DeleteSubscription": "",
    "ModifyAckDeadline": "",
    "Acknowledge": "",
    "Pull": "PullResponse",
    "StreamingPull": "StreamingPullResponse",
    "ModifyPushConfig": "",
    "GetSnapshot": "Snapshot",
    "ListSnapshots": "ListSnapshotsResponse",
    "CreateSnapshot": "Snapshot",
    "UpdateSnapshot": "Snapshot",
    "DeleteSnapshot": "",
    "Seek": "SeekResponse",
}
SCHEMA_SERVICE = {
    "CreateSchema": "Schema",
    "GetSchema": "Schema",
    "ListSchemas": "ListSchemasResponse",
    "ListSchemaRevisions": "ListSchemaRevisionsResponse",
    "CommitSchema": "Schema",
    "RollbackSchema": "Schema",
    "DeleteSchemaRevision": "Schema",
    "DeleteSchema": "",
    "ValidateSchema": "ValidateSchemaResponse",
    "ValidateMessage": "ValidateMessageResponse",
}
REQUESTS = {"CreateTopic": "Topic", "CreateSubscription": "Subscription"}
STREAMING = {"StreamingPull"}


def descriptors() -> FileDescriptorSet:
    """All files, each after those that it imports; protobuf's own are not among them."""
    return FileDescriptorSet(file=_files())


def _files() -> Iterator[FileDescriptorProto]:
    schemas = _copy(schema.Schema.pb().DESCRIPTOR.file, SCHEMA)
    _add_service(schemas, "SchemaService", SCHEMA_SERVICE)
    yield schemas
    messages = _copy(pubsub.Topic.pb().DESCRIPTOR.file, PUBSUB)
    messages.dependency[:] = [SCHEMA if "schema" in name else name for name in messages.dependency]
    _add_service(messages, "Publisher", PUBLISHER)
    _add_service(messages, "Subscriber", SUBSCRIBER)
    yield messages
    yield _copy(expr_pb2.DESCRIPTOR, "google/type/expr.proto")
    yield _copy(options_pb2.DESCRIPTOR, "google/iam/v1/options.proto")
    yield _copy(policy_pb2.DESCRIPTOR, "google/iam/v1/policy.proto")
    yield _copy(iam_policy_pb2.DESCRIPTOR, "google/iam/v1/iam_policy.proto")
    yield _copy(status_pb2.DESCRIPTOR, "google/rpc/status.proto")
    yield _copy(error_details_pb2.DESCRIPTOR, "google/rpc/error_details.proto")
    yield _copy(health_pb2.DESCRIPTOR, "grpc/health/v1/health.proto")
    alpha = _copy(reflection_pb2.DESCRIPTOR, REFLECTION)
    yield alpha
    yield _stable(alpha)


def _copy(file: FileDescriptor, name: str) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    proto.name = name
    proto.ClearField("options")
    proto.dependency[:] = [imported for imported in proto.dependency if not imported.startswith("google/api/")]
    return proto


def _stable(alpha: FileDescriptorProto) -> FileDescriptorProto:
    """The reflection service's version 1: version 1alpha under another package."""
    proto = FileDescriptorProto()
    proto.CopyFrom(alpha)
    proto.name = proto.name.replace("v1alpha", "v1")
    proto.package = proto.package.replace("v1alpha", "v1")
    for message in proto.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace("v1alpha", "v1")
    for service in proto.service:
        for method in service.method:
            method.input_type = method.input_type.replace("v1alpha", "v1")
            method.output_type = method.output_type.replace("v1alpha", "v1")
    return proto


def _add_service(file: FileDescriptorProto, name: str, rpcs: dict[str, str]) -> None:
    service = file.service.add(name=name)
    for rpc, response in rpcs.items():
        service.method.add(
            name=rpc,
            input_type=f".{file.package}.{REQUESTS.get(rpc, f'{rpc}Request')}",
            output_type=f".{file.package}.{response}" if response else ".google.protobuf.Empty",
            client_streaming=rpc in STREAMING,
            server_streaming=rpc in STREAMING,
        )
    if EMPTY not in file.dependency:
        file.dependency.append(EMPTY)


if __name__ == "__main__":
    TARGET.write_bytes(descriptors().SerializeToString(deterministic=True))
