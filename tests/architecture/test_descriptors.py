"""The definitions that the gRPC door speaks are those of the client that support.toml was reviewed with."""

import importlib.metadata

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from api_spec.make_grpc_descriptors import TARGET, descriptors
from tests.architecture.surface import support


def test_the_definitions_are_those_that_the_generator_makes() -> None:
    if importlib.metadata.version("google-cloud-pubsub") != support()["reviewed"]:
        pytest.skip("another google-cloud-pubsub is installed than was reviewed")
    assert FileDescriptorSet.FromString(TARGET.read_bytes()) == descriptors()
