"""The classes of the protobuf messages of the APIs, by their names in the protocol definitions.

They are in a descriptor pool of their own, because a program that also loads Google's client, such as the tests,
has other classes of the same names in the default pool.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2)


def files() -> list[FileDescriptorProto]:
    """The definitions, each after those that it imports."""
    own = FileDescriptorSet.FromString((Path(__file__).parent / "descriptors.binpb").read_bytes())
    return [*(FileDescriptorProto.FromString(m.DESCRIPTOR.serialized_pb) for m in _WELL_KNOWN), *own.file]


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in files():
        pool.Add(file)
    return pool


POOL = _pool()


@cache
def _class(name: str) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(name))


def __getattr__(name: str) -> Any:
    """The message of this name in google.pubsub.v1."""
    try:
        return _class(f"google.pubsub.v1.{name}")
    except KeyError:
        raise AttributeError(f"google.pubsub.v1 has no message {name}") from None


def request_of(rpc: str) -> Any:
    """The class of the requests of a method ("Publisher.CreateTopic")."""
    service, _, name = rpc.partition(".")
    method = POOL.FindServiceByName(full_name(service)).methods_by_name[name]
    return GetMessageClass(method.input_type)


@cache
def response_of(rpc: str) -> Any | None:
    """The class of the answers of a method; None: the method is not one of Google's Pub/Sub or IAMPolicy."""
    service, _, name = rpc.partition(".")
    try:
        method = POOL.FindServiceByName(full_name(service)).methods_by_name[name]
    except KeyError:
        return None
    return GetMessageClass(method.output_type)


def full_name(service: str) -> str:
    """Returns the name of one of Google's services ("Publisher") with its package."""
    return f"google.iam.v1.{service}" if service == "IAMPolicy" else f"google.pubsub.v1.{service}"


Duration = _class("google.protobuf.Duration")
Empty = _class("google.protobuf.Empty")
FieldMask = _class("google.protobuf.FieldMask")
Timestamp = _class("google.protobuf.Timestamp")
IamPolicy = _class("google.iam.v1.Policy")
TestIamPermissionsResponse = _class("google.iam.v1.TestIamPermissionsResponse")
Status = _class("google.rpc.Status")
ErrorInfo = _class("google.rpc.ErrorInfo")
QuotaFailure = _class("google.rpc.QuotaFailure")
RetryInfo = _class("google.rpc.RetryInfo")
HealthCheckRequest = _class("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _class("grpc.health.v1.HealthCheckResponse")
ServerReflectionRequest = _class("grpc.reflection.v1.ServerReflectionRequest")
ServerReflectionResponse = _class("grpc.reflection.v1.ServerReflectionResponse")
