"""The checker of ordered and exactly-once subscriptions must notice what it is there for."""

from collections.abc import Callable

import pytest

from tests.durability.ordered_history import Change, OrderedHistory, Publish, Response, Subscription

A, B = "a", "b"  # keys


def ack(at: float, *named: int, refused: tuple[int, ...] = ()) -> Change:
    return Change(at, at + 0.1, frozenset(named), None, frozenset(named) - set(refused), frozenset(refused))


def deadline(at: float, seconds: float, *named: int) -> Change:
    return Change(at, at + 0.1, frozenset(named), seconds, frozenset(named))


def unanswered(change: Change) -> Change:
    return Change(change.started_at, change.ended_at, change.named, change.seconds)


def response(at: float, *ids: int, key: str = A) -> Response:
    return Response(at, at + 0.1, [(message_id, key) for message_id in ids])


def _subscription(ordered: bool, exactly_once: bool) -> Subscription:
    return Subscription("s", ordered, exactly_once, 10.0)


def _flawless() -> OrderedHistory:
    """Key a: 1 to 4, b: 5 to 7, none: 8.  The broker nacks, expires and goes on; one publish had no answer."""
    history = OrderedHistory([_subscription(ordered=True, exactly_once=False)])
    history.publishes[A] = [Publish(A, ["a1", "a2"], [1, 2]), Publish(A, ["a3"]), Publish(A, ["a4"], [4])]
    history.publishes[B] = [Publish(B, ["b1", "b2", "b3"], [5, 6, 7])]
    history.publishes[""] = [Publish("", ["x"], [8])]
    [subscription] = history.subscriptions
    texts = {1: "a1", 2: "a2", 3: "a3", 4: "a4", 5: "b1", 6: "b2", 7: "b3", 8: "x"}
    subscription.texts = texts
    run = response(1, 1, 2)
    run.changes = [ack(2, 2), deadline(3, 0, 1)]  # the ack of 2 is void
    again = response(4, 1, 2, 3)
    again.changes = [ack(5, 1, 2), deadline(6, 1, 3)]
    rest = response(8, 3, 4)
    rest.changes = [ack(9, 3, 4)]
    b = response(1, 5, 6, key=B)
    b.changes = [unanswered(ack(2, 5, 6))]
    b_rest = response(3, 7, key=B)
    b_rest.changes = [ack(4, 7)]
    x = response(3, 8, key="")
    x.changes = [ack(4, 8)]
    subscription.responses = [rest, run, again, b, b_rest, x]
    return history


def test_a_flawless_history_passes() -> None:
    _flawless().check()


def _responses(history: OrderedHistory) -> list[Response]:
    return history.subscriptions[0].responses


def _lose_a_message(history: OrderedHistory) -> None:
    _responses(history).pop()
    del history.subscriptions[0].texts[8]


def _invent_a_message(history: OrderedHistory) -> None:
    history.subscriptions[0].texts[9] = "y"
    _responses(history).append(response(9, 9, key=""))


def _store_a_publish_twice(history: OrderedHistory) -> None:
    history.subscriptions[0].texts[9] = "x"
    _responses(history).append(response(9, 9, key=""))


def _mix_up_keys(history: OrderedHistory) -> None:
    _responses(history)[-1].messages = [(8, B)]


def _number_out_of_order(history: OrderedHistory) -> None:
    history.publishes[A].reverse()


def _deliver_out_of_order(history: OrderedHistory) -> None:
    _responses(history)[3].messages.reverse()


def _leave_a_gap_in_a_response(history: OrderedHistory) -> None:
    _responses(history)[2].messages = [(1, A), (3, A)]
    _responses(history).insert(0, response(4.5, 2))


def _deliver_the_next_before_the_ack(history: OrderedHistory) -> None:
    _responses(history)[4].sent_at, _responses(history)[4].received_at = 1.5, 1.6


def _deliver_the_next_after_a_refused_ack(history: OrderedHistory) -> None:
    _responses(history)[3].changes = [ack(2, 5, 6, refused=(6,))]


def _deliver_the_next_while_another_is_redelivered(history: OrderedHistory) -> None:
    _responses(history).append(response(8.3, 1))
    _responses(history).append(response(8.5, 4))


def _forget_what_a_nack_brings_back(history: OrderedHistory) -> None:
    """1 comes again alone and is acked; the ack of 2 from before must not count."""
    again, alone = _responses(history)[2], response(4, 1)
    alone.changes = [ack(5, 1)]
    again.messages, again.sent_at, again.received_at = [(3, A)], 5.5, 5.6
    again.changes = again.changes[1:]
    _responses(history).append(alone)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (_lose_a_message, "never delivered"),
        (_invent_a_message, "9 'y'"),
        (_store_a_publish_twice, "stored twice"),
        (_mix_up_keys, "8 'x' 'b'"),
        (_number_out_of_order, r"a: \[4, 1, 2\]"),
        (_deliver_out_of_order, "first deliveries of b"),
        (_leave_a_gap_in_a_response, "not neighbours"),
        (_deliver_the_next_before_the_ack, "while 5 is not settled"),
        (_deliver_the_next_after_a_refused_ack, "while 6 is not settled"),
        (_deliver_the_next_while_another_is_redelivered, "while 1 is not settled"),
        (_forget_what_a_nack_brings_back, "while 2 is not settled"),
    ],
)
def test_a_fault_of_order_is_noticed(spoil: Callable[[OrderedHistory], None], complaint: str) -> None:
    history = _flawless()
    spoil(history)
    with pytest.raises(AssertionError, match=complaint):
        history.check()


def _exactly_once(*responses: Response, ordered: bool = False) -> OrderedHistory:
    history = OrderedHistory([_subscription(ordered, exactly_once=True)])
    history.subscriptions[0].responses = list(responses)
    for message_id, key in history.subscriptions[0].keys_of().items():
        history.subscriptions[0].texts[message_id] = f"m{message_id}"
        history.publishes[key].append(Publish(key, [f"m{message_id}"], [message_id]))
    return history


def _with(given: Response, *changes: Change) -> Response:
    given.changes = list(changes)
    return given


@pytest.mark.parametrize(
    "changes",
    [
        [deadline(2, 0, 1)],
        [deadline(2, 1, 1)],
        [unanswered(deadline(2, 0, 1))],
        [unanswered(deadline(2, 20, 1))],
        [deadline(2, 20, 1), deadline(3, 1, 1)],
        [Change(2, 15, frozenset([1]), 0)],
    ],
    ids=["nack", "short deadline", "a nack in doubt", "an extension in doubt", "the last one counts", "under way"],
)
def test_a_message_may_come_again_when_its_lease_may_be_over(changes: list[Change]) -> None:
    at = 12 if changes[0].seconds == 20 and not changes[0].done else 5
    _exactly_once(_with(response(1, 1, key=""), *changes), response(at, 1, key="")).check()


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [deadline(2, 20, 1)],
        [deadline(6, 0, 1)],
        [Change(2, 2.1, frozenset([1]), 0, refused=frozenset([1]))],
        [deadline(2, 0, 9)],
    ],
    ids=["nothing happened", "extended", "a nack after it", "a refused nack", "another's nack"],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_message_that_is_out_twice_is_noticed(changes: list[Change], ordered: bool) -> None:
    history = _exactly_once(_with(response(1, 1), *changes), response(5, 1), ordered=ordered)
    with pytest.raises(AssertionError, match="was out since"):
        history.check()


def test_a_lease_that_was_extended_is_looked_at_beyond_the_first_deadline() -> None:
    history = _exactly_once(_with(response(1, 1), deadline(2, 20, 1)), response(15, 1))
    with pytest.raises(AssertionError, match="was out since"):
        history.check()


def test_messages_of_a_key_share_a_lease() -> None:
    """A nack of the first brings the second back; a deadline of the second alone moves nothing for certain."""
    nacked = _with(response(1, 1, 2), deadline(2, 0, 1))
    _exactly_once(nacked, response(3, 1, 2), ordered=True).check()
    extended = _with(response(1, 1, 2), deadline(2, 20, 2))
    _exactly_once(extended, response(12, 1, 2), ordered=True).check()
    with pytest.raises(AssertionError, match="was out since"):
        _exactly_once(_with(response(1, 1, 2), deadline(2, 20, 1, 2)), response(12, 1, 2), ordered=True).check()


def test_a_delivery_after_an_ack_is_noticed() -> None:
    acked = _with(response(1, 1, key=""), ack(2, 1))
    with pytest.raises(AssertionError, match="was acked at"):
        _exactly_once(acked, response(15, 1, key="")).check()
    acked.changes = [ack(2, 1, refused=(1,))]
    _exactly_once(acked, response(15, 1, key="")).check()
