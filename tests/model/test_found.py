"""What the model found, in as few steps as show it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from tests.model.both import Both
from tests.model.model import HOUR, MINUTE, SECOND, Filter, Options
from tests.model.running_broker import RunningBroker

BLUE = Filter('attributes.colour = "blue"', lambda attributes: attributes.get("colour") == "blue")


@pytest.fixture(scope="module")
def broker(clone: Callable[[], AbstractContextManager[str]]) -> Iterator[RunningBroker]:
    with clone() as database_url, RunningBroker(database_url).running() as running:
        yield running


@pytest.fixture
def both(broker: RunningBroker, project: str) -> Both:
    both = Both(broker, project.rpartition("/")[2])
    both.create_topic("topic")
    return both


def test_what_is_published_after_a_seek_to_a_later_time_is_delivered(both: Both) -> None:
    both.create_subscription("sub", "topic")
    both.publish("topic")
    both.seek_to_time("sub", both.model.now + HOUR)
    both.pull("sub")
    both.publish("topic")
    both.get_position("sub")
    assert both.pull("sub")


def test_a_snapshot_of_a_detached_subscription_is_refused(both: Both) -> None:
    both.create_subscription("sub", "topic")
    both.detach_subscription("sub")
    both.create_snapshot("snap", "sub")


def test_expired_messages_beyond_a_claim_s_reach_are_still_due_afterwards(both: Both) -> None:
    """The retry delay of those that the claim took moved the time before which it knew that nothing was due."""
    both.create_subscription("sub", "topic", Options(retry=(100, 600)))
    for _ in range(3):
        both.publish("topic")
        both.pull("sub")
        both.time_passes(SECOND)
    both.time_passes(10 * MINUTE)
    for _ in range(3):
        assert both.pull("sub", 1)


def test_a_repeated_ack_succeeds_though_the_rest_of_the_response_has_failed(both: Both) -> None:
    both.create_subscription("sub", "topic", Options(exactly_once=True))
    both.publish("topic", 2)
    acked, nacked = both.pull("sub")
    both.acknowledge("sub", [acked])
    both.nack("sub", [nacked])
    both.pull("sub")
    both.acknowledge("sub", [acked])


def test_messages_that_were_given_up_come_back_when_the_dead_letter_policy_is_removed(both: Both) -> None:
    both.create_topic("dead")
    both.create_subscription("sub", "topic", Options(dead_letter_topic="dead"))
    both.publish("topic")
    for _ in range(5):
        both.nack("sub", both.pull("sub"))
    both.pull("sub")
    both.remove_dead_letter_policy("sub")
    both.forward_dead_letters()
    assert both.pull("sub")


def test_a_dead_letter_has_the_body_of_its_message_and_attributes_that_say_where_it_failed(both: Both) -> None:
    both.create_topic("dead")
    both.create_subscription("letters", "dead")
    both.create_subscription("sub", "topic", Options(dead_letter_topic="dead"))
    both.publish("topic", colour="red")
    for _ in range(5):
        both.nack("sub", both.pull("sub"))
    both.forward_dead_letters()
    assert both.pull("letters")


def test_a_subscription_does_not_seek_to_before_its_own_beginning(both: Both) -> None:
    """Unless the topic retains messages: those are for everybody."""
    both.create_subscription("other", "topic")  # so that the log keeps it
    both.publish("topic")
    both.time_passes(SECOND)
    both.create_subscription("sub", "topic", Options(retain_acked=True))
    both.seek_to_time("sub", both.model.now - timedelta(days=1))
    assert both.pull("sub") == []


def test_a_pull_looks_past_messages_of_a_response_that_are_too_old_by_now(both: Both) -> None:
    both.create_subscription("sub", "topic", Options(retention=10 * MINUTE))
    both.publish("topic", 2)
    both.time_passes(SECOND)
    both.publish("topic")
    both.pull("sub")
    both.time_passes(10 * MINUTE)
    assert both.pull("sub", 2)


def test_who_has_a_message_may_ack_it_after_its_time_and_it_comes_back_to_nobody(both: Both) -> None:
    """Also with exactly-once delivery: its lease counts and not its time, and the same ack succeeds again."""
    both.create_subscription("once", "topic", Options(exactly_once=True))
    both.create_subscription("sub", "topic")
    both.publish_expiring("topic", [4, 4])
    acked, kept = both.pull("once")
    both.pull("sub")
    both.time_passes(5 * SECOND)
    for _ in range(2):
        both.acknowledge("once", [acked])
    both.time_passes(5 * SECOND)
    both.acknowledge("once", [kept])  # too late: its lease is over
    assert (both.pull("once"), both.pull("sub")) == ([], [])


def test_a_purge_drops_what_an_ordered_subscription_s_snapshot_has_brought_to_one_without_ordering(
    both: Both,
) -> None:
    """Of a key's messages that were not handed out yet the snapshot has that they wait for an earlier one."""
    both.create_subscription("ordered", "topic", Options(ordered=True))
    both.create_subscription("sub", "topic")
    both.publish("topic", 2, "a", colour="blue")
    both.nack("ordered", both.pull("ordered", 1))
    both.create_snapshot("snapshot", "ordered")
    both.seek_to_snapshot("sub", "snapshot")
    both.purge("sub", BLUE)
    assert both.pull("sub") == []
