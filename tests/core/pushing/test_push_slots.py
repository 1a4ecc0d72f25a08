"""Slots for pushes: hanging, failing and slow endpoints leave room for the others (M1)."""

from datetime import timedelta

import pytest

from broker.access.secrets.secrets import Secrets
from broker.core.pushing.endpoint import Endpoint, Flight, PushBatch
from broker.core.pushing.health.endpoint_health import ALL_FAIL, EndpointHealth
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.request.envelope import Envelope
from broker.core.pushing.slots import PushSlots
from broker.fairness.shared_capacity import Over
from broker.model.push_config import PushConfig, PushOptions
from broker.model.subscription import Subscription

NOW = 1_000.0


def make_endpoint(
    subscription_id: int, project: str = "p", *, latency: float | None = None, url: str = "http://far.example/"
) -> Endpoint:
    """`latency`: seconds that it has taken for an answer; None: it has not answered yet."""
    subscription = Subscription(
        subscription_id=subscription_id,
        name=f"projects/{project}/subscriptions/s{subscription_id}",
        topic="projects/p/topics/t",
        push_config=PushConfig(endpoint=url),
    )
    health = EndpointHealth(PushOptions(), now=NOW, jitter=lambda: 0.0)
    if latency is not None:
        health.succeeded(health.begin(NOW - latency), NOW)
    return Endpoint(subscription, health, Envelope(subscription, Secrets()), FailingWatch(timedelta(0)))


def send(slots: PushSlots, endpoint: Endpoint, most: int, *, now: float = NOW) -> int:
    """Start requests that nobody answers, up to `most`; returns how many there was room for."""
    for count in range(most):
        slot = slots.take(endpoint, now)
        if isinstance(slot, Over):
            return count
        assert isinstance(slot, tuple)
        flight = Flight(PushBatch([], now, now, 0), endpoint.health, endpoint.health.begin(now), slot, now)
        endpoint.flights[flight] = None
    return most


def test_hanging_subscriptions_of_one_project_leave_slots_to_whoever_comes() -> None:
    slots = PushSlots()
    for number in range(2_000):
        send(slots, make_endpoint(number, "hangs"), 8)
    assert slots.free >= 4_000 // 6
    for number in range(8):
        assert send(slots, make_endpoint(5_000 + number, f"new{number}"), 8) == 1, "until it has answered"
        assert send(slots, make_endpoint(6_000 + number, f"neighbour{number}", latency=0.01), 8) == 8


@pytest.mark.parametrize("one_origin", [True, False])
def test_hanging_subscriptions_of_many_projects_leave_slots_to_whoever_comes(one_origin: bool) -> None:
    """Project names cost nothing."""
    slots = PushSlots()
    for number in range(1_500):
        url = "http://hangs.example/" if one_origin else f"http://hangs-{number}.example/"
        send(slots, make_endpoint(number, f"p{number}", url=url), 8)
    assert send(slots, make_endpoint(5_000, "new"), 8) == 1, "until it has answered"
    assert send(slots, make_endpoint(6_000, "neighbour", latency=0.01), 100) == 100


def test_endpoints_that_did_well_and_hang_all_at_once_leave_one_request_to_whoever_has_none() -> None:
    slots = PushSlots()
    for number in range(20):
        send(slots, make_endpoint(number, f"p{number}", latency=0.01), 4_000)
    assert slots.free < 500
    for number in range(20):
        assert send(slots, make_endpoint(5_000 + number, f"new{number}", latency=0.01), 8) == 1
        assert send(slots, make_endpoint(6_000 + number, f"newer{number}"), 8) == 1


def test_what_is_new_or_fails_leaves_slots_to_what_does_well_in_the_same_project() -> None:
    slots = PushSlots()
    hanging = [make_endpoint(number) for number in range(2_000)]
    for endpoint in hanging:
        send(slots, endpoint, 8)
    assert send(slots, make_endpoint(5_000), 8) <= 1, "one that is not known stands with them"
    assert send(slots, make_endpoint(5_001, latency=0.01), 100) >= 50
    failing = make_endpoint(5_002, latency=0.01)
    for _ in range(ALL_FAIL):
        failing.health.failed(failing.health.begin(NOW), NOW)
    assert send(slots, failing, 8) <= 1


@pytest.mark.parametrize("latency", [0.01, 5.0, 60.0])
def test_alone_an_endpoint_has_half_of_all_and_a_fast_one_more_however_slow_it_is(latency: float) -> None:
    slots = PushSlots()
    got = send(slots, make_endpoint(1, latency=latency), 4_000)
    assert got >= 3_000 if latency < 1 else got >= 2_000


def test_a_slow_endpoint_comes_down_to_one_request_when_others_want_slots() -> None:
    slots = PushSlots(capacity=400)
    slow, slots_of_slow = make_endpoint(1, latency=20.0), 200
    assert send(slots, slow, 400) >= slots_of_slow
    send(slots, make_endpoint(2, "other", latency=0.01), 400)
    while len(slow.flights) > 1:
        flight = next(iter(slow.flights))
        del slow.flights[flight]
        slots.give_back(flight.slot)
        assert isinstance(slots.take(slow, NOW), Over) or len(slow.flights) <= 3
        send(slots, make_endpoint(3, "other", latency=0.01), 400)
    slow.flights.clear()
    assert not isinstance(slots.take(slow, NOW), Over), "one it may always have"


def test_a_request_without_an_answer_tells_that_an_endpoint_is_slow_before_it_has_failed() -> None:
    endpoint = make_endpoint(1, latency=0.01)
    send(PushSlots(), endpoint, 1)
    assert endpoint.latency(NOW) == pytest.approx(0.01)
    assert endpoint.latency(NOW + 30) == pytest.approx(30)


def test_slots_are_given_back_by_the_way_they_were_taken() -> None:
    """Also if the endpoint did otherwise when it took them."""
    slots = PushSlots(capacity=10, reserve=0)
    endpoint = make_endpoint(1)
    slot = slots.take(endpoint, NOW)
    assert not isinstance(slot, Over)
    endpoint.health.succeeded(endpoint.health.begin(NOW), NOW + 0.01)
    slots.give_back(slot)
    assert (slots.taken, slots.free) == (0, 10)
    assert not slots._shared_capacity._held
