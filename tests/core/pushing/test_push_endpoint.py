"""What an endpoint wants and holds: the part of push without a loop or a database (A8)."""

from datetime import UTC, datetime, timedelta

from broker.access.secrets.secrets import Secrets
from broker.core.pushing.endpoint import MAX_BYTES_HELD, Endpoint
from broker.core.pushing.health.endpoint_health import EndpointHealth
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.request.envelope import Envelope
from broker.model.delivery import Delivery, StoredMessage
from broker.model.push_config import Digest, PushConfig, PushOptions
from broker.model.subscription import Extensions, Subscription

NOW = 1000.0
TIME = datetime(2026, 11, 21, tzinfo=UTC)


def make_endpoint(options: PushOptions | None = None) -> Endpoint:
    options = options or PushOptions()
    subscription = Subscription(
        name="projects/p/subscriptions/s",
        topic="projects/p/topics/t",
        subscription_id=7,
        shard_ids=(1, 2),
        push_config=PushConfig(endpoint="http://far.example/push"),
        extensions=Extensions(push=options),
    )
    return Endpoint(
        subscription,
        EndpointHealth(options, now=NOW),
        Envelope(subscription, Secrets()),
        FailingWatch(timedelta(0)),
    )


def delivery(*seqs: int, size: int = 10, attempt_id: int = 1) -> Delivery:
    messages = [StoredMessage(seq, TIME, None, "{}", b"x" * size) for seq in seqs]
    return Delivery(1, attempt_id, 1, messages)


def test_an_unknown_endpoint_is_claimed_for_as_far_as_there_is_capacity() -> None:
    endpoint = make_endpoint()
    assert endpoint.wants(NOW) == endpoint.health.available(NOW) == 8
    endpoint.asked = 3
    assert endpoint.wants(NOW) == 5
    endpoint.accept([delivery(*range(5))], NOW)
    assert endpoint.wants(NOW) == 0


def test_nothing_is_wanted_by_what_is_closed_suspended_or_full() -> None:
    endpoint = make_endpoint()
    endpoint.suspended = True
    assert endpoint.wants(NOW) == 0
    endpoint.suspended, endpoint.closed = False, True
    assert endpoint.wants(NOW) == 0
    endpoint.closed = False
    endpoint.accept([delivery(1, size=MAX_BYTES_HELD)], NOW)
    assert endpoint.wants(NOW) == 0


def test_a_fast_endpoint_is_claimed_for_ahead_until_it_asks_for_a_rest() -> None:
    endpoint = make_endpoint()
    first, second = endpoint.health.begin(NOW), endpoint.health.begin(NOW)
    endpoint.health.succeeded(endpoint.health.begin(NOW), NOW + 0.001)
    assert endpoint.wants(NOW + 0.001) > 100
    endpoint.health.failed(first, NOW + 0.002, retry_after=30)
    endpoint.health.succeeded(second, NOW + 0.003)
    assert endpoint.wants(NOW + 0.004) == 0
    assert 9 < (endpoint.health.opens_at(NOW + 0.004) or NOW) - NOW <= 10.01


def test_a_digest_is_one_batch_and_one_at_a_time() -> None:
    digest = Digest(max_messages=3, max_delay=timedelta(seconds=1), max_bytes=1000)
    endpoint = make_endpoint(PushOptions(digest=digest))
    assert endpoint.wants(NOW) == 1
    endpoint.accept([delivery(1, 2), delivery(7, attempt_id=2)], NOW)
    assert [[item.message.seq for item in push_batch.items] for push_batch in endpoint.buffer] == [[1, 2, 7]]


def test_an_endpoint_is_looked_at_again_when_nobody_will_say_that_it_has_capacity() -> None:
    endpoint = make_endpoint()
    assert endpoint.wakes_at(NOW, held_up=False) is None, "there is nothing for it"
    assert endpoint.wakes_at(NOW, held_up=True) == NOW, "it has room since it was asked"
    attempts = [endpoint.health.begin(NOW) for _ in range(endpoint.health.available(NOW))]
    assert endpoint.wakes_at(NOW, held_up=True) is None, "an answer must come in"
    for attempt in attempts:
        endpoint.health.failed(attempt, NOW, retry_after=30)
    rested = endpoint.health.opens_at(NOW)
    assert rested is not None, "it asks for a rest"
    assert endpoint.wakes_at(NOW, held_up=True) == rested
    assert endpoint.wakes_at(NOW, held_up=False) is None
    endpoint.accept([delivery(1)], NOW)
    assert endpoint.wakes_at(NOW, held_up=False) == rested, "what is claimed is sent then"


def test_an_alarm_that_has_passed_before_anybody_looked_rings_at_once() -> None:
    """Behind messages on which the endpoint hangs: by now they are stuck and there is room, and no answer comes."""
    endpoint = make_endpoint()
    hanging = [endpoint.health.begin(NOW) for _ in range(endpoint.health.available(NOW) - 1)]
    endpoint.health.succeeded(endpoint.health.begin(NOW), NOW + 0.001)
    while endpoint.health.available(NOW + 0.001):
        endpoint.health.begin(NOW + 0.001)
    endpoint.accept([delivery(1)], NOW)
    opens_at = endpoint.health.opens_at(NOW + 0.001)
    assert opens_at is not None
    assert NOW < opens_at < NOW + 1, "the first of those that hang is stuck then"
    endpoint.alarm_at = opens_at
    assert endpoint.health.available(opens_at + 0.1) > 0
    assert endpoint.wakes_at(opens_at + 0.1, held_up=False) == opens_at + 0.1
    assert not any(attempt.ended for attempt in hanging)


def test_bytes_are_given_back_as_push_batches_end() -> None:
    endpoint = make_endpoint()
    endpoint.accept([delivery(1, 2, 3)], NOW)
    held = endpoint.bytes_held
    first = endpoint.buffer[0].items[0]
    endpoint.drop(first)
    assert endpoint.bytes_held == held - first.message.size
    assert len(endpoint.take_buffer()) == 2
    assert endpoint.bytes_held == 0


def test_a_message_is_followed_while_its_call_is_overdue() -> None:
    """To where it is out by now."""
    endpoint = make_endpoint()
    endpoint.accept([delivery(1)], NOW)
    [old] = endpoint.take_buffer()[0].items
    endpoint.late[old.key] = old
    endpoint.accept([delivery(1, attempt_id=2)], NOW)
    assert endpoint.late[old.key].name.attempt_id == 2
