"""Exactly-once delivery through the Python client: every ack and nack has an answer (D2)."""

import pytest
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.types import FlowControl
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import types

from tests.fixtures.google import SECONDS, Google, Handler, hold


def test_an_ack_is_confirmed_and_what_was_acked_never_comes_again(google: Google) -> None:
    """D2: also when it is acked a second time."""
    google.create(enable_exactly_once_delivery=True)
    google.publish(*[f"{n}" for n in range(50)])
    handler = Handler(hold)
    with google.subscribed(handler):
        messages = handler.wait_for(50)
        answers = [message.ack_with_response() for message in messages]
        assert {answer.result(SECONDS) for answer in answers} == {AcknowledgeStatus.SUCCESS}
        assert messages[0].ack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
    assert len(handler.received) == 50
    assert google.pull_at_once() == []


def test_only_the_latest_delivery_of_a_message_can_be_acked(google: Google) -> None:
    """D2: the client reads in the details of the error which ack ids failed, and why."""
    google.create(enable_exactly_once_delivery=True)
    google.publish("a")
    handler = Handler(hold)
    with google.subscribed(handler):
        [first] = handler.wait_for(1)
        assert first.nack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
        second = handler.wait_for(2)[1]
        assert second.message_id == first.message_id
        for refused in (first.ack_with_response(), first.modify_ack_deadline_with_response(30)):
            with pytest.raises(AcknowledgeError) as failure:
                refused.result(SECONDS)
            assert failure.value.error_code == AcknowledgeStatus.INVALID_ACK_ID
        assert second.ack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
    assert google.pull_at_once() == []


def test_a_changed_deadline_is_confirmed(google: Google) -> None:
    """D2: a nack is confirmed as well, and the message comes again at once."""
    google.create(enable_exactly_once_delivery=True)
    google.publish("given up", "kept")
    handler = Handler(hold)
    with google.subscribed(handler):
        messages = {m.data: m for m in handler.wait_for(2)}
        for data, seconds in ((b"kept", 600), (b"given up", 0)):
            answer = messages[data].modify_ack_deadline_with_response(seconds)
            assert answer.result(SECONDS) == AcknowledgeStatus.SUCCESS
        again = handler.wait_for(3)[-1]
        assert again.data == b"given up"
        assert again.ack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
        assert messages[b"kept"].ack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
    assert google.pull_at_once() == []


def test_acks_of_a_key_are_confirmed_in_order(google: Google) -> None:
    """D2, A6: the client hands out the next message of a key once the one before is acked."""
    google.create(enable_exactly_once_delivery=True, enable_message_ordering=True)
    google.publish(*[f"{n}" for n in range(10)], ordering_key="key")
    answers = []
    handler = Handler(lambda message: answers.append(message.ack_with_response()))
    with google.subscribed(handler):
        handler.wait_for(10)
        assert {answer.result(SECONDS) for answer in answers} == {AcknowledgeStatus.SUCCESS}
    assert handler.texts == [f"{n}" for n in range(10)]
    assert google.pull_at_once() == []


def test_a_stream_follows_when_exactly_once_delivery_is_switched_on(google: Google) -> None:
    """D2: by the properties of the subscription in the responses; acks then have real answers."""
    google.create()
    handler = Handler(hold)
    with google.subscribed(handler, flow_control=FlowControl(max_messages=10)):
        google.publish("before")
        [before] = handler.wait_for(1)
        wanted = types.Subscription(name=google.subscription, enable_exactly_once_delivery=True)
        mask = FieldMask(paths=["enable_exactly_once_delivery"])
        google.subscriber.update_subscription(subscription=wanted, update_mask=mask)
        before.ack()
        google.publish("after")
        after = handler.wait_for(2)[1]
        assert after.nack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
        again = handler.wait_for(3)[2]
        with pytest.raises(AcknowledgeError):
            after.ack_with_response().result(SECONDS)
        assert again.ack_with_response().result(SECONDS) == AcknowledgeStatus.SUCCESS
