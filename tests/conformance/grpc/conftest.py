"""The conformance tests once more, over gRPC.

What a test asks that only REST has (JSON that is wrong, extensions, plain paths, query parameters) skips it.
"""

from collections.abc import Generator, Iterator
from typing import Any

import grpc
import pytest

from tests.fixtures.grpc import GrpcRest, NotOverGrpc, channel_to

# What protobuf's own JSON parser, which makes the requests here, lets pass.
ONLY_JSON = (
    "test_what_is_not_base64_is_refused",
    "test_what_is_no_push_config_at_all_is_refused_too",
    "both spellings",
    "test_a_name_in_the_body_must_be_the_one_in_the_path",
    "test_a_body_of_more_than_ten_mebibytes_is_refused",  # it has fewer in protobuf
)


@pytest.fixture(scope="session")
def channel(broker_url: str) -> Iterator[grpc.Channel]:
    with channel_to(broker_url) as opened:
        yield opened


@pytest.fixture
def rest(channel: grpc.Channel, project: str) -> GrpcRest:
    return GrpcRest(channel, project)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if any(name in item.nodeid for name in ONLY_JSON):
        pytest.skip("only JSON can say it")
    try:
        return (yield)
    except NotOverGrpc as reason:
        pytest.skip(f"not over gRPC: {reason}")
