"""What streams have outstanding: every way in which a message is settled makes room (A7)."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.flow_control import UNCOUNTED, FlowControl
from broker.core.pulling.outstanding import MAX_LEFT, Outstanding, Window
from broker.model.ack_id import MessageNames
from broker.model.delivery import Delivery, StoredMessage
from tests.fixtures.log import Log


class _Clock(DatabaseClock):
    """The log's time, which tests move."""

    def __init__(self, log: Log) -> None:
        self.time = log.start

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock(log: Log) -> _Clock:
    return _Clock(log)


@pytest.fixture
def outstanding(log: Log, clock: _Clock) -> Outstanding:
    return Outstanding(log.database, clock)


def open_window(outstanding: Outstanding, log: Log, messages: int = 10, size: int = 0, client: str = "") -> Window:
    return outstanding.open(log.subscription.subscription_id, client, FlowControl(messages, size))


async def hand_out(outstanding: Outstanding, window: Window, log: Log, *data: str) -> Sequence[Delivery]:
    await log.publish(*data)
    deliveries = await log.pull()
    outstanding.handed_out(window, deliveries)
    return deliveries


def acked(log: Log, delivery: Delivery, *ordinals: int) -> list[MessageNames]:
    return [{log.name(delivery): set(ordinals)}]


async def test_a_window_is_full_at_its_messages_and_opens_as_they_are_settled(
    log: Log, outstanding: Outstanding
) -> None:
    window = open_window(outstanding, log, 3)
    [delivery] = await hand_out(outstanding, window, log, "a", "b", "c")
    assert window.available(1000) == 0
    outstanding.remove(acked(log, delivery, 0, 1))
    assert await window.wait_for_change()
    assert window.available(1000) == 2
    outstanding.remove(acked(log, delivery, 1, 2))  # one of them twice
    assert window.available(1000) == 3
    outstanding.remove(acked(log, delivery, 0))  # of an attempt that is done with
    assert (window.messages, window.bytes, window.sizes) == (0, 0, {})


async def test_a_window_is_full_once_its_bytes_are_reached(log: Log, outstanding: Outstanding) -> None:
    window = open_window(outstanding, log, 0, 500)
    [delivery] = await hand_out(outstanding, window, log, "a", "b", "c")
    assert window.available(1000) == 1000
    [other] = await hand_out(outstanding, window, log, "x" * 400)
    assert window.available(1000) == 0
    outstanding.remove(acked(log, other, 0))
    assert window.available(1000) == 1000
    assert window.messages == len(delivery.messages)


@pytest.mark.parametrize("limit", [FlowControl(), FlowControl(UNCOUNTED)])
async def test_without_a_limit_nothing_is_counted(log: Log, outstanding: Outstanding, limit: FlowControl) -> None:
    window = outstanding.open(log.subscription.subscription_id, "", limit)
    await hand_out(outstanding, window, log, "a")
    assert (window.available(1000), window.sizes) == (1000, {})


async def test_a_look_finds_what_was_acked_elsewhere(log: Log, outstanding: Outstanding) -> None:
    window = open_window(outstanding, log, 3)
    [delivery] = await hand_out(outstanding, window, log, "a", "b", "c")
    assert not await window.wait_for_change()  # nobody has told
    await log.acknowledge(delivery, [0, 2])
    await outstanding.check(window)
    assert window.sizes == {log.name(delivery): {1: delivery.messages[1].size}}


async def test_a_look_finds_what_was_nacked_or_is_due_or_was_sought_away(
    log: Log, outstanding: Outstanding, clock: _Clock
) -> None:
    window = open_window(outstanding, log, 3)
    [first] = await hand_out(outstanding, window, log, "a", "b")
    await log.nack(first, [0])
    await outstanding.check(window)
    assert window.messages == 1
    clock.time = log.start + timedelta(seconds=3600)  # past the ack deadline
    await outstanding.check(window)
    assert window.messages == 0
    await hand_out(outstanding, window, log, "c")
    await log.execute("DELETE FROM delivery_attempts")
    await outstanding.check(window)
    assert window.available(1000) == 3


async def test_looks_become_seldom_while_they_find_nothing(log: Log, outstanding: Outstanding) -> None:
    window = open_window(outstanding, log, 1)
    [delivery] = await hand_out(outstanding, window, log, "a")
    loop = asyncio.get_running_loop()
    spans = []
    for _ in range(3):
        before = loop.time()
        assert not await window.wait_for_change()
        spans.append(loop.time() - before)
        await outstanding.check(window)
    assert spans[2] > spans[0]
    outstanding.remove(acked(log, delivery, 0))
    assert await window.wait_for_change()


async def test_a_client_that_comes_back_has_what_it_left_outstanding(log: Log, outstanding: Outstanding) -> None:
    window = open_window(outstanding, log, 3, client="worker-1")
    [delivery] = await hand_out(outstanding, window, log, "a", "b")
    outstanding.close(window)
    assert open_window(outstanding, log, 3, client="worker-2").available(1000) == 3
    assert open_window(outstanding, log, 3).available(1000) == 3
    again = open_window(outstanding, log, 3, client="worker-1")
    assert again.available(1000) == 1
    outstanding.remove(acked(log, delivery, 0, 1))
    assert again.available(1000) == 3
    assert open_window(outstanding, log, 3, client="worker-1").available(1000) == 3  # its other stream


async def test_clients_that_never_come_back_are_forgotten(log: Log, outstanding: Outstanding) -> None:
    message = StoredMessage(1, log.start, None, "{}", b"")
    for number in range(MAX_LEFT + 5):
        window = open_window(outstanding, log, client=f"worker-{number}")
        if number < 2:
            await hand_out(outstanding, window, log, "a")
        else:
            outstanding.handed_out(window, [Delivery(log.shard_id, number, 1, [message])])
        outstanding.close(window)
    assert open_window(outstanding, log, client="worker-0").messages == 0
    assert open_window(outstanding, log, client=f"worker-{MAX_LEFT + 4}").messages == 1
    assert set(outstanding.subscriptions()) == {log.subscription.subscription_id}
