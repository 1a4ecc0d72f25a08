"""The checker finds each kind of violation, and nothing in what a correct broker does."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.checker import check
from tests.faults.checks.view import DEAD_LETTER_COUNT, DEAD_LETTER_SOURCE, View
from tests.faults.history import Fault, History, Publish, Subscription
from tests.faults.planted import PLANTS
from tests.faults.planted_acts import PLANTS_ACTS
from tests.faults.planted_reports import PLANTS_TOLD
from tests.faults.simulator import Simulator
from tests.faults.story import DEAD_LETTERS, Story, reported

SEEDS = st.integers(0, 10**9)
_TOLD_OR_DONE = {**PLANTS_TOLD, **PLANTS_ACTS}
_TRIES = 200  # histories, for one that has a place for a fault


# --- contents ----------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_all_is_well() -> None:
    assert reported().rules() == []


def test_a_message_that_was_answered_and_never_came_is_lost() -> None:
    story = reported()
    story.publish(3, 3)
    assert story.rules() == ["lost"]
    story.receive(4, 3)
    assert story.rules() == []


def test_a_message_that_was_delivered_and_never_acked_is_forgotten_if_it_does_not_come_again() -> None:
    story = reported()
    story.publish(3, 3)
    story.receive(4, 3)
    story.nack(5, "3@4")
    assert story.rules(drained=False) == ["forgotten"]
    story.receive(6, 3)
    assert story.rules(drained=False) == ["forgotten"]
    story.ack(7, "3@6", outcome="unknown")
    assert story.rules(drained=False) == []


def test_what_an_endpoint_refused_is_forgotten_if_it_is_not_pushed_again() -> None:
    story = Story()
    story.publish(0, 1)
    story.receive(1, 1, how="push", status=500)
    assert story.rules(drained=False) == ["forgotten"]
    story.receive(2, 1, how="push", status=204)
    assert story.rules(drained=False) == []


def test_an_ack_that_was_refused_may_have_been_made_if_something_was_broken_then() -> None:
    for broken in (False, True):
        story = Story(exactly_once=True)
        story.publish(0, 1)
        story.receive(1, 1)
        story.ack(12, "1@1", refused={"1@1": "stale"})
        if broken:
            story.fault(11, 13)
        assert story.rules(drained=False) == ([] if broken else ["forgotten"])


def test_a_message_that_the_filter_does_not_want_is_not_lost_but_invented_if_it_comes() -> None:
    story = Story(wanted={"kind": "rare"})
    story.publish(0, 1, attributes={"kind": "common"})
    assert story.rules() == []
    story.receive(1, 1, attributes={"kind": "common"})
    assert story.rules() == ["invented"]


def test_a_message_that_nobody_published_is_invented() -> None:
    story = reported()
    story.receive(3, 4)
    assert story.rules() == ["invented"]


@pytest.mark.parametrize("fields", [{"key": "k"}, {"attributes": {"a": "b"}}])
def test_a_message_with_another_key_or_other_attributes_is_changed(fields: dict[str, Any]) -> None:
    story = Story()
    story.publish(0, 1)
    story.receive(1, 1, **fields)
    assert story.rules() == ["changed"]


def test_a_message_under_another_id_is_changed_even_if_its_publish_had_no_answer() -> None:
    story = Story()
    story.publish(0, 1, outcome="unknown")
    story.receive(1, 1)
    assert story.rules() == []
    story.receive(20, 1001)
    assert story.rules() == ["changed"]


def test_a_message_twice_in_one_response_is_found() -> None:
    story = Story()
    story.publish(0, 1)
    story.receive(1, 1, 1)
    assert story.rules() == ["twice in a response"]


def test_a_publish_without_an_answer_is_whole_or_absent() -> None:
    story = reported()
    story.publish(3, 3, 4, outcome="unknown")
    assert story.rules() == []
    story.receive(4, 3)
    assert story.rules() == ["half a publish"]
    story.receive(5, 4)
    assert story.rules() == []


def test_it_is_there_for_all_subscriptions_or_for_none() -> None:
    story = Story()
    story.history.subscriptions.append(Subscription("other", "topic"))
    story.publish(0, 1, outcome="unknown")
    story.receive(1, 1)
    assert story.rules() == ["half a publish"]
    story.receive(2, 1, name="other")
    assert story.rules() == []


def test_a_refused_publish_is_not_stored() -> None:
    story = Story()
    story.publish(0, 1, outcome="failed")
    assert story.rules() == []
    story.receive(1, 1)
    assert story.rules() == ["refused, and stored"]


def test_ids_ascend_for_each_publisher_and_shard() -> None:
    story = reported()
    story.publish(3, 10**15 + 3)
    story.publish(4, 4)  # in another shard
    story.receive(5, 10**15 + 3, 4)
    assert story.rules() == []
    story = reported()
    story.publish(3, 4)
    story.publish(5, 3)
    story.receive(6, 3, 4)
    assert story.rules() == ["ids"]


def test_an_id_is_given_once() -> None:
    story = reported()
    story._add(Publish(who="b", began=3, ended=4, topic="topic", texts=["m3"], ids=[2]))
    assert set(story.rules()) == {"ids", "lost"}


def test_what_is_left_after_the_drain_is_found_and_so_is_a_look_that_is_missing() -> None:
    assert reported().rules(left=1) == ["backlog"]
    assert [v.rule for v in check(History([Subscription("sub", "topic")]))] == ["backlog"]


# --- order -------------------------------------------------------------------------------------------------------


def keyed(**terms: Any) -> Story:
    story = Story(ordered=True, **terms)
    story.publish(0, 1, key="k")
    story.publish(1, 2, key="k")
    return story


def test_first_deliveries_of_a_key_follow_its_publishes() -> None:
    story = keyed()
    story.receive(2, 2, key="k")
    story.ack(3, "2@2")
    story.receive(4, 1, key="k")
    assert set(story.rules()) == {"first deliveries", "turns"}


def test_without_a_key_or_on_an_unordered_subscription_they_need_not() -> None:
    for terms, fields in (({"ordered": True}, {}), ({}, {"key": "k"})):
        story = Story(**terms)
        story.publish(0, 1, 2, **fields)
        story.receive(2, 2, **fields)
        story.receive(3, 1, **fields)
        assert story.rules() == []


def test_the_next_of_a_key_waits_for_the_ack_of_the_one_before() -> None:
    story = keyed()
    story.receive(2, 1, key="k")
    story.receive(4, 2, key="k")
    assert story.rules() == ["turns"]
    story.ack(3, "1@2", outcome="unknown")  # but it may have been acked
    assert story.rules() == []


def test_it_may_stand_behind_it_in_the_same_response_unless_it_overtakes() -> None:
    story = keyed()
    story.receive(2, 1, 2, key="k")
    assert story.rules() == []
    story = keyed()
    story.receive(2, 2, 1, key="k")
    assert set(story.rules()) == {"first deliveries", "turns"}


def test_after_a_nack_the_later_ones_come_again_behind_it() -> None:
    story = keyed()
    story.receive(2, 1, 2, key="k")
    story.ack(3, "2@2")
    story.nack(4, "1@2")
    story.receive(5, 1, key="k")  # proof that the ack of 2 does not count
    story.ack(6, "1@5")
    story.publish(7, 3, key="k")
    story.receive(8, 3, key="k")
    assert story.rules() == ["turns"]
    story.receive(6.5, 2, key="k")
    story.ack(6.7, "2@6.5")
    assert story.rules() == []


def test_a_dead_letter_lets_the_next_of_its_key_go() -> None:
    story = keyed(max_attempts=1, dead_letter_topic="letters")
    story.history.subscriptions.append(DEAD_LETTERS)
    story.receive(2, 1, key="k", attempt=1)
    story.nack(3, "1@2")
    story.receive(5, 2, key="k", attempt=1)
    story.ack(6, "2@5")
    assert set(story.rules()) == {"turns", "dead letters"}
    reported = {DEAD_LETTER_SOURCE: "sub", DEAD_LETTER_COUNT: "1"}
    story.receive(4, 5001, name="letters", key="k", attributes=reported)
    assert story.rules() == []


# --- histories of a simulated broker -----------------------------------------------------------------------------


@pytest.mark.parametrize("acting", [False, True])
def test_a_correct_broker_violates_nothing(acting: bool) -> None:
    @settings(max_examples=30, deadline=None)
    @given(SEEDS)
    def is_fine(seed: int) -> None:
        assert [str(violation) for violation in check(Simulator(seed, acting=acting).run())] == []

    is_fine()


def _planted(plant: Callable[[View, random.Random], bool], seed: int) -> History | None:
    """The history of a seed with the fault in it; None: it has no place for it."""
    history = Simulator(seed, acting=plant in PLANTS_ACTS).run()
    return history if plant(View(history), random.Random(seed)) else None


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found_in_any_history(plant: Callable[[View, random.Random], bool]) -> None:
    @settings(max_examples=8, deadline=None)
    @given(SEEDS)
    def is_found(seed: int) -> None:
        history = next(filter(None, (_planted(plant, seed + n) for n in range(_TRIES))))
        assert check(history) != []

    is_found()


@pytest.mark.parametrize("plant", _TOLD_OR_DONE)
def test_what_is_told_or_done_wrongly_is_found_by_its_rule(plant: Callable[[View, random.Random], bool]) -> None:
    @settings(max_examples=4, deadline=None)
    @given(SEEDS)
    def is_found(seed: int) -> None:
        history = next(filter(None, (_planted(plant, seed + n) for n in range(_TRIES))))
        assert _TOLD_OR_DONE[plant] in {violation.rule for violation in check(history)}

    is_found()


def test_a_history_can_be_written_and_read(tmp_path: Path) -> None:
    history = Simulator(1).run()
    history.add(Fault(who="f", began=1, ended=2, name="kill a worker"))
    history.write(tmp_path / "history.jsonl")
    again = History.read(tmp_path / "history.jsonl")
    assert (again.subscriptions, again.operations) == (history.subscriptions, history.operations)
