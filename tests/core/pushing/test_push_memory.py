"""What is held for endpoints is bounded, for each and for all of a process."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.access.secrets.secrets import Secrets
from broker.core.pushing import endpoint as endpoint_module
from broker.core.pushing.endpoint import MAX_BYTES_HELD, Endpoint, Memory
from broker.core.pushing.health.endpoint_health import EndpointHealth
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.request.envelope import Envelope
from broker.model.delivery import Delivery, StoredMessage
from broker.model.push_config import PushConfig, PushOptions
from broker.model.subscription import Subscription

NOW = 1_000.0


def make_endpoint(memory: Memory, subscription_id: int = 1) -> Endpoint:
    subscription = Subscription(
        subscription_id=subscription_id,
        name="projects/p/subscriptions/s",
        topic="projects/p/topics/t",
        push_config=PushConfig(endpoint="http://127.0.0.1/"),
    )
    health = EndpointHealth(PushOptions(), now=NOW, jitter=lambda: 0.0)
    return Endpoint(subscription, health, Envelope(subscription, Secrets()), FailingWatch(timedelta(0)), memory)


def claim(endpoint: Endpoint, size: int, seq: int = 1) -> None:
    message = StoredMessage(seq, datetime.now(UTC), None, "{}", bytes(size))
    endpoint.accept([Delivery(1, seq, 1, [message])], NOW)


def test_an_endpoint_that_holds_enough_claims_no_more_until_it_is_rid_of_it() -> None:
    endpoint = make_endpoint(Memory())
    assert endpoint.wants(NOW) == 8
    claim(endpoint, MAX_BYTES_HELD)
    assert endpoint.wants(NOW) == 0
    endpoint.take_buffer()
    assert endpoint.wants(NOW) == 8


def test_when_all_hold_too_much_each_may_still_have_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "MAX_BYTES_OF_ALL", 1_000)
    memory = Memory()
    hanging, other = make_endpoint(memory), make_endpoint(memory, 2)
    claim(hanging, 2_000)
    assert hanging.wants(NOW) == 0
    assert other.wants(NOW) == 1
    claim(other, 10)
    assert other.wants(NOW) == 0
    hanging.take_buffer()
    assert other.wants(NOW) == 7


def test_a_message_settled_while_it_waits_is_let_go() -> None:
    memory = Memory()
    endpoint = make_endpoint(memory)
    claim(endpoint, 100, seq=1)
    claim(endpoint, 100, seq=2)
    endpoint.drop(endpoint.buffer[0].items[0])
    assert len(endpoint.buffer) == 1
    assert memory.bytes_held == endpoint.bytes_held == endpoint.buffer[0].size
    endpoint.take_buffer()
    assert memory.bytes_held == endpoint.bytes_held == 0
