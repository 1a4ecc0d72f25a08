"""The checker of the workload must notice what it is there for."""

from collections.abc import Callable

import pytest

from tests.durability.workload import ACK_DEADLINE_SECONDS, History, Publish, Received


def _flawless() -> History:
    """Two publishes, delivered to two pullers, all acked but m4, which came twice; a fault at 100 s."""
    return History(
        publishes=[[Publish(["m1", "m2"], ["1", "2"]), Publish(["m3"], ["3"])], [Publish(["m4", "m5"])]],
        received=[
            [Received("1", "m1", 90, 91), Received("2", "m2", 90, 91), Received("4", "m4", 99, 99.5)],
            [Received("3", "m3", 92, 93), Received("4", "m4", 108, 109), Received("5", "m5", 110, 111)],
        ],
        acked_at={"1": 92, "2": 92, "3": 94, "4": 110, "5": 112},
        fault_at=100,
    )


def test_a_flawless_history_passes() -> None:
    history = _flawless()
    history.check_complete()
    assert history.unsettled == set()
    assert [received.received_at for received in history.delivered_again()] == [109]


def _lose_a_message(history: History) -> None:
    history.received[1].pop(0)


def _deliver_after_the_ack(history: History) -> None:
    history.received[1].append(Received("1", "m1", 113, 114))


def _lose_half_a_publish(history: History) -> None:
    history.received[1].pop()


def _mix_up_data(history: History) -> None:
    history.received[1][0] = Received("3", "m2", 92, 93)


def _invent_a_message(history: History) -> None:
    history.received[1].append(Received("6", "m6", 113, 114))


def _store_a_publish_twice(history: History) -> None:
    history.received[1].append(Received("6", "m5", 113, 114))


def _number_out_of_order(history: History) -> None:
    history.publishes[0].reverse()


def _deliver_out_of_order(history: History) -> None:
    history.received[0][:2] = reversed(history.received[0][:2])


@pytest.mark.parametrize(
    "spoil",
    [
        _lose_a_message,
        _deliver_after_the_ack,
        _lose_half_a_publish,
        _mix_up_data,
        _invent_a_message,
        _store_a_publish_twice,
        _number_out_of_order,
        _deliver_out_of_order,
    ],
)
def test_a_fault_is_noticed(spoil: Callable[[History], None]) -> None:
    history = _flawless()
    spoil(history)
    with pytest.raises(AssertionError):
        history.check_complete()


def test_an_ack_in_doubt_need_not_come_back_but_what_was_never_acked_must() -> None:
    history = _flawless()
    del history.acked_at["5"], history.acked_at["4"]
    history.ack_in_doubt.add("5")
    assert history.unsettled == {"4"}
    assert history.fault_at + ACK_DEADLINE_SECONDS > 109
