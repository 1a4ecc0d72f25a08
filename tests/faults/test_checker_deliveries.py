"""The checker on acks and leases, delivery attempts and dead letters, snapshots and seeks."""

from typing import Any

import pytest

from tests.faults.checks.view import DEAD_LETTER_COUNT, DEAD_LETTER_ID, DEAD_LETTER_REASON
from tests.faults.history import Delivery, Receive
from tests.faults.story import DEAD_LETTERS, Story, reported

# --- acks and leases ---------------------------------------------------------------------------------------------


def test_an_acked_message_does_not_come_again() -> None:
    story = reported()
    story.receive(14, 1)
    assert story.rules() == ["acked, and came again"]


@pytest.mark.parametrize("answer", [{"outcome": "unknown"}, {"refused": {"1@1": "no"}}, {"seconds": 0}])
def test_one_whose_ack_had_no_answer_or_was_refused_may(answer: dict[str, Any]) -> None:
    story = Story()
    story.publish(0, 1)
    story.receive(1, 1)
    story.ack(2, "1@1", **answer)
    story.receive(14, 1)
    assert story.rules() == []


def test_one_whose_receive_began_before_the_ack_was_answered_may_have_come_before_it() -> None:
    story = reported()
    story._add(Receive(who="q", began=2.05, ended=8, subscription="sub", deliveries=[Delivery(1, "m1", "x")]))
    assert story.rules() == ["two leases"]


def test_one_whose_ack_came_too_late_may_come_again_except_with_exactly_once_delivery() -> None:
    for exactly_once in (False, True):
        story = Story(exactly_once=exactly_once)
        story.publish(0, 1)
        story.receive(1, 1)
        story.ack(11.2, "1@1")
        story.receive(12, 1)
        assert story.rules() == (["acked, and came again"] if exactly_once else [])


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_message_is_out_once_at_a_time(exactly_once: bool) -> None:
    story = Story(exactly_once=exactly_once)
    story.publish(0, 1)
    story.receive(1, 1)
    story.receive(5, 1)
    assert story.rules() == ["two leases"]
    assert _again_at(11.2).rules() == []  # after its deadline


def _again_at(at: float) -> Story:
    story = Story(exactly_once=True)
    story.publish(0, 1)
    story.receive(1, 1)
    story.receive(at, 1)
    return story


def test_a_new_deadline_lengthens_the_lease_and_a_nack_ends_it() -> None:
    story = _again_at(15)
    story.ack(2, "1@1", seconds=20)
    assert story.rules() == ["two leases"]
    story = _again_at(5)
    story.nack(3, "1@1")
    assert story.rules() == []
    story = _again_at(15)
    story.ack(2, "1@1", seconds=20, outcome="unknown")
    assert story.rules() == []


def test_messages_of_a_key_share_a_lease() -> None:
    """A nack of the first brings the second back; a deadline of the second alone moves nothing for certain."""

    def again(at: float, ack_ids: list[str], seconds: float) -> list[str]:
        story = Story(ordered=True, exactly_once=True)
        story.publish(0, 1, 2, key="k")
        story.receive(1, 1, 2, key="k")
        story.ack(2, *ack_ids, seconds=seconds)
        story.receive(at, 1, 2, key="k")
        return story.rules()

    assert again(3, ["1@1"], 0) == []
    assert again(12, ["2@1"], 20) == []
    assert set(again(12, ["1@1", "2@1"], 20)) == {"two leases"}


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [(0, {"outcome": "failed"}), (20, {}), (1, {})],
    ids=["a failed nack", "extended", "shortened"],
)
def test_a_lease_lasts_as_long_as_the_calls_that_took_effect_say(seconds: float, answer: dict[str, Any]) -> None:
    story = Story(exactly_once=True)
    story.publish(0, 1)
    story.receive(1, 1)
    story.ack(2, "1@1", seconds=seconds, **answer)
    story.receive(5, 1)
    assert story.rules() == ([] if seconds == 1 else ["two leases"])


def test_a_lease_may_have_ended_by_a_nack_that_is_refused_but_nothing_is_refused_while_it_lives() -> None:
    story = _again_at(5)
    story.ack(3, "1@1", seconds=0, refused={"1@1": "stale"})  # done, not answered, and done again
    assert story.rules() == ["refused in time"]
    story.fault(2.9, 3.1)
    assert story.rules() == []
    story = reported(exactly_once=True)
    story.nack(5, "1@1", refused={"1@1": "stale"})  # for it is acked
    assert story.rules() == []


def test_an_ack_that_is_repeated_before_the_deadline_is_not_refused() -> None:
    for at in (5, 12):
        story = reported(exactly_once=True)
        story.ack(at, "1@1", refused={"1@1": "stale"})
        assert story.rules() == (["refused in time"] if at == 5 else [])


def test_a_response_that_comes_after_its_own_lease_is_none() -> None:
    story = Story(exactly_once=True)
    story.publish(0, 1)
    story._add(Receive(who="p", began=1, ended=14, subscription="sub", deliveries=[Delivery(1, "m1", "late")]))
    story.receive(12, 1)
    assert story.rules() == []


def test_a_lease_counts_from_when_its_message_was_there_though_its_receive_began_before() -> None:
    def again(at: float) -> Story:
        story = Story()
        story._add(Receive(who="p", began=1, ended=8, subscription="sub", deliveries=[Delivery(1, "m1", "x")]))
        story.publish(5, 1)
        story.receive(at, 1)
        return story

    assert again(11.3).rules() == ["two leases"]
    assert again(15.3).rules() == []


def streamed(*, delays: bool) -> Story:
    """A stream brings 1 at 7, close behind another response; then a puller gets it before 7 + 10."""
    story = Story(exactly_once=True)
    story.publish(0, 1)
    story.fault(2, 7, delays=delays)
    story.receive(7, 1, how="stream")
    story.receive(12.5, 1)
    return story


def test_what_a_stream_brings_after_a_delay_may_have_been_leased_since_its_begin() -> None:
    assert streamed(delays=False).rules() == ["two leases"]
    story = streamed(delays=True)
    assert story.rules() == []
    story.receive(13, 1)  # but those who pull know when it began
    assert story.rules() == ["two leases"]


def test_a_delay_does_not_excuse_what_a_stream_brings_long_after_it_or_what_others_pull() -> None:
    story = Story(exactly_once=True)
    story.publish(0, 1)
    story.fault(2, 7, delays=True)
    story.receive(9.5, 1, how="stream")
    story.receive(13, 1)
    assert story.rules() == ["two leases"]
    story = Story(exactly_once=True)
    story.publish(0, 1)
    story.fault(2, 7, delays=True)
    story.receive(7, 1)
    story.receive(12.5, 1)
    assert story.rules() == ["two leases"]


def test_what_a_stream_brings_after_a_delay_may_have_been_on_its_way_before_an_ack_was_answered() -> None:
    for delays in (True, False):
        story = Story(exactly_once=True)
        story.publish(0, 1)
        story.receive(1, 1)
        story.fault(2, 17, delays=delays)
        story.ack(15, "1@1")
        story.receive(17, 1, how="stream")
        assert story.rules() == ([] if delays else ["acked, and came again"])


def test_what_an_endpoint_took_is_pushed_again_only_after_a_fault() -> None:
    def pushed(status: int) -> Story:
        story = Story()
        story.publish(0, 1)
        story.receive(1, 1, how="push", status=status)
        story.receive(5, 1, how="push", status=204)
        return story

    assert pushed(500).rules() == []
    story = pushed(204)
    assert story.rules() == ["pushed again"]
    story.fault(0, 9, excuses=False)
    assert story.rules() == ["pushed again"]
    story.fault(2, 4)
    assert story.rules() == []


# --- attempts and dead letters -----------------------------------------------------------------------------------


def tried(*numbers: int) -> Story:
    """Attempts of message 1 with these numbers, 11 seconds apart, from 1 on."""
    story = Story(max_attempts=5, dead_letter_topic="letters")
    story.history.subscriptions.append(DEAD_LETTERS)
    story.publish(0, 1)
    for place, number in enumerate(numbers):
        story.receive(1 + 11 * place, 1, attempt=number)
    return story


def test_attempts_are_counted_without_gaps_or_repeats() -> None:
    assert tried(1, 2, 3).rules() == []
    for numbers in ((2,), (1, 3), (1, 1), (0,), (6,)):
        assert set(tried(*numbers).rules()) == {"attempts"}, numbers
    assert "attempts" in tried(1, 3, 2).rules()


def test_a_number_may_be_missing_where_a_response_was_lost() -> None:
    story = tried(1, 3)
    story._add(Receive(who="q", began=2, ended=3, outcome="unknown", subscription="sub"))
    assert story.rules() == []
    story = tried(1, 4)  # two of them take twenty seconds
    story._add(Receive(who="q", began=2, ended=3, outcome="unknown", subscription="sub"))
    story._add(Receive(who="q", began=2, ended=3, outcome="unknown", subscription="sub"))
    assert story.rules() == ["attempts"]


def test_nor_does_a_fault_excuse_one_that_excuses_nothing() -> None:
    for excuses in (True, False):
        story = tried(1, 3)
        story.fault(0, 30, excuses=excuses)
        assert story.rules() == ([] if excuses else ["attempts"])


def test_used_up_attempts_make_one_dead_letter() -> None:
    story = tried(1, 2, 3, 4, 5)
    assert story.rules() == ["dead letters"]
    story.dead_letter(70, 5001)
    story.dead_letter(82, 5001)  # the same, delivered again
    assert story.rules() == []
    story.dead_letter(90, 6001)
    assert story.rules() == ["dead letters"]


def test_a_dead_letter_before_its_time_or_with_a_wrong_count_is_found() -> None:
    story = tried(1, 2)
    story.dead_letter(70, 5001)
    assert story.rules() == ["dead letters"]
    story = tried(1, 2, 3, 4, 5)
    story.dead_letter(70, 5001, **{DEAD_LETTER_COUNT: "4"})
    assert story.rules() == ["dead letters"]


def test_a_dead_letter_that_tells_a_wrong_origin_or_reason_is_found() -> None:
    for attributes, broken in (
        ({DEAD_LETTER_ID: "1", DEAD_LETTER_REASON: "push 503"}, []),
        ({DEAD_LETTER_ID: "2"}, ["changed"]),
        ({DEAD_LETTER_REASON: "it was late"}, ["changed"]),
    ):
        story = tried(1, 2, 3, 4, 5)
        story.dead_letter(70, 5001, **attributes)
        assert story.rules() == broken


def test_a_message_that_was_acked_is_no_dead_letter() -> None:
    story = tried(1, 2, 3, 4, 5)
    story.ack(46, "1@45")
    assert story.rules() == []
    story.dead_letter(70, 5001)
    assert story.rules() == ["dead letters"]


# --- seeks -------------------------------------------------------------------------------------------------------


def sought(**seek: Any) -> Story:
    """Message 1 was acked before the snapshot, 2 between it and the seek."""
    story = Story()
    story.publish(0, 1, 2)
    story.receive(1, 1, 2)
    story.ack(2, "1@1")
    story.snapshot(3)
    story.ack(4, "2@1")
    story.seek(5, **seek)
    return story


def test_a_seek_brings_back_what_was_unacked_when_its_snapshot_was_taken() -> None:
    story = sought()
    assert story.rules() == ["not restored"]
    story.receive(6, 2)
    assert story.rules() == []


def test_and_what_was_published_since() -> None:
    story = sought()
    story.publish(3.5, 3)
    story.receive(3.7, 3)
    story.receive(6, 2)
    assert story.rules() == ["not restored"]
    story.receive(7, 3)
    assert story.rules() == []


def test_it_does_not_bring_back_what_was_acked_before() -> None:
    story = sought()
    story.receive(6, 1, 2)
    assert story.rules() == ["acked, and came again"]


def test_a_seek_without_an_answer_may_have_happened_and_a_later_one_may_settle() -> None:
    story = sought(outcome="unknown")
    assert story.rules() == []
    story.receive(6, 2)
    assert story.rules() == []
    story = sought()
    story.snapshot(4.5, "later")
    story.seek(5.5, "later")
    assert story.rules() == []
