"""What a seek has brought about, over gRPC: metadata behind an answer that is empty, as Google's is (A9)."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.pubsub_v1 import types

from tests.fixtures.grpc import GrpcRest


@pytest.mark.parametrize("retained", [False, True])
async def test_a_seek_tells_what_comes_again_in_trailing_metadata(
    rest: GrpcRest, channel: grpc.Channel, retained: bool
) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=retained)
    await rest.publish("a", "b")
    await rest.acknowledge(await rest.pull())
    request = types.SeekRequest(subscription=rest.subscription(), time=datetime.now(UTC) - timedelta(hours=1))
    seek = channel.unary_unary("/google.pubsub.v1.Subscriber/Seek")
    answer, call = seek.with_call(types.SeekRequest.serialize(request), timeout=20)
    reported = {key: value for key, value in call.trailing_metadata() if key.startswith("broker-")}
    assert answer == b""
    assert reported.pop("broker-replayed-messages") == ("2" if retained else "0")
    assert ("broker-retained-since" in reported) == retained
    assert reported["broker-not-retained"].startswith("Acked messages ")
