"""The checker of pushes itself: it passes what is right, and finds each kind of fault that is planted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.durability.push_history import DeadLetter, Fault, Publish, PushHistory, Sent, Silence, Subscription

ONE, TWO = Publish("k", ["a"], ids=[1]), Publish("k", ["b"], ids=[2])
A = Sent("a", 1, time=10.0, ended=10.1, status=200, key="k", path="/p")
B = Sent("b", 2, time=11.0, ended=11.1, status=200, key="k", path="/p")


def history(
    *sent: Sent, faults: Sequence[Fault] = (), publishes: Sequence[Publish] = (ONE, TWO), **fields: Any
) -> PushHistory:
    return PushHistory([Subscription("s", **{"ordered": True} | fields, sent=[*sent])], [*publishes], [*faults])


def finds(words: str, *sent: Sent, **fields: Any) -> None:
    with pytest.raises(AssertionError, match=words):
        history(*sent, **fields).check()


def failed(sent: Sent, **changes: Any) -> Sent:
    return replace(sent, status=500, **changes)


def again(sent: Sent, seconds: float, **changes: Any) -> Sent:
    ended = None if sent.ended is None else sent.ended + seconds
    return replace(sent, time=sent.time + seconds, ended=ended, **changes)


def test_what_is_right_passes() -> None:
    history(A, B).check()
    history(failed(A), again(A, 0.5), B).check()
    history(A, B, publishes=[ONE, TWO, Publish("k", ["c"])]).check()
    history(
        A, B, replace(B, text="c", message_id=3, time=12, ended=12.1), publishes=[ONE, TWO, Publish("k", ["c"])]
    )


def test_a_lost_message_is_found() -> None:
    finds("1 never delivered", A)
    finds("1 never delivered", A, failed(B))
    finds("1 never delivered", A, replace(B, status=None))


def test_what_was_not_published_is_found() -> None:
    finds("nobody published", A, B, replace(B, text="x", message_id=3))
    finds("its key is", replace(A, key=""), B)
    finds("id of", A, B, again(replace(A, message_id=9), 5))


def test_a_message_that_was_stored_twice_is_found() -> None:
    unknown = Publish("", ["c"])
    c = Sent("c", 3, time=12.0, ended=12.1, status=200)
    finds("id of", A, B, c, replace(c, message_id=4), publishes=[ONE, TWO, unknown])


def test_what_a_filter_does_not_match_is_found_and_not_missed() -> None:
    rare = replace(TWO, attributes={"kind": "rare"})
    history(B, publishes=[ONE, rare], wanted={"kind": "rare"}).check()
    finds("filter does not match", A, B, publishes=[ONE, rare], wanted={"kind": "rare"})


def test_publishes_out_of_order_are_found() -> None:
    finds(r"k: \[2, 1\]", A, B, publishes=[TWO, ONE])


def test_a_message_sent_before_its_turn_is_found() -> None:
    finds("before earlier ones", A, again(B, -0.95))
    finds("before earlier ones", failed(A), again(B, -0.5), again(A, 0.8))
    history(
        replace(A, key=""), replace(B, key="", time=10.05), publishes=[replace(ONE, key=""), replace(TWO, key="")]
    )


def test_an_earlier_message_sent_after_a_later_one_is_found() -> None:
    killed = [Fault("killed", 10.05, 10.1)]
    history(A, again(A, 0.5), B, faults=killed).check()
    finds("came after", A, B, again(A, 2), faults=killed)
    stopped = [Fault("stopped", 9, 12)]
    history(A, B, again(A, 2), faults=stopped).check()


def test_a_repeat_without_a_reason_is_found() -> None:
    finds("sent again", A, again(A, 0.5), B)
    finds("sent again", A, again(A, 0.05), B)
    finds("sent again", A, again(A, 0.5), B, faults=[Fault("killed", 13, 13), Fault("database", 1, 9)])


def test_a_late_answer_is_a_reason_for_a_repeat() -> None:
    late = replace(A, ended=21.0)
    history(late, again(A, 10), again(B, 11)).check()
    history(replace(A, ended=None, status=None), again(A, 10), again(B, 11)).check()
    finds("sent again", late, again(A, 5), again(B, 11))


def test_numbers_of_attempts_that_are_wrong_are_found() -> None:
    def tried(*numbers: int, **fields: Any) -> PushHistory:
        requests = [failed(again(A, n / 2, delivery_attempt=number)) for n, number in enumerate(numbers)]
        return history(*requests, replace(requests[-1], status=200), publishes=[ONE], max_attempts=5, **fields)

    def check(*numbers: int, **fields: Any) -> None:
        subject = tried(*numbers, **fields)
        subject.subscriptions[0].sent.pop(-2)  # the last one is the success
        subject.check()

    check(1, 2, 3)
    check(1, 3, faults=[Fault("killed", 0, 0)])
    for numbers in [(1, 1), (1, 3), (2, 3), (1, 2, 3, 4, 5, 6)]:
        with pytest.raises(AssertionError, match="attempts of"):
            check(*numbers)
    with pytest.raises(AssertionError, match="attempts of"):
        check(1, 2, 2, faults=[Fault("killed", 0, 0)])


def test_wrong_dead_letters_are_found() -> None:
    tries = [failed(again(A, n / 10, delivery_attempt=n + 1)) for n in range(5)]
    right: dict[str, Any] = {"max_attempts": 5, "dead_letters": [DeadLetter("a", 5)]}
    b = replace(B, delivery_attempt=1)
    history(*tries, b, **right).check()
    finds("more than one", *tries, b, **right | {"dead_letters": [DeadLetter("a", 5)] * 2})
    finds("after", *tries[:4], b, **right)
    finds("deliveries=4", *tries, b, **right | {"dead_letters": [DeadLetter("a", 4)]})
    finds("nobody", *tries, b, **right | {"dead_letters": [DeadLetter("a", 5), DeadLetter("x", 5)]})
    finds("status=200", *tries[:4], replace(tries[4], status=200), b, **right)


def test_more_than_the_rate_allows_is_found() -> None:
    texts = [f"m{n}" for n in range(30)]
    many = [Publish("", [text], ids=[n]) for n, text in enumerate(texts)]

    def paced(seconds: float, **fields: Any) -> PushHistory:
        sent = [Sent(t, n, time=n * seconds, ended=n * seconds, status=200) for n, t in enumerate(texts)]
        return history(*sent, publishes=many, rate=10, **fields)

    paced(0.05).check()
    paced(0.01, faults=[Fault("killed", 0, 0)]).check()
    with pytest.raises(AssertionError, match="in the second"):
        paced(0.01).check()


def test_a_request_to_an_endpoint_that_was_replaced_is_found() -> None:
    history(A, B, silences=[Silence("/p", 10.2, 10.9), Silence("/q", 0, 99)]).check()
    finds("Silence", A, B, silences=[Silence("/p", 10.2, 99.0)])
    history(A, B, silences=[Silence("/p", 10.2, 99.0)], faults=[Fault("database", 0, 1)]).check()


def test_what_is_left_over_is_found() -> None:
    finds("backlog", A, B, undelivered=1)
    finds("backlog", A, B, outstanding=1)
