"""An ack deadline counts from when messages are handed out, however long the claim had to wait before (A7)."""

import asyncio
from datetime import datetime, timedelta

import pytest

from broker.model.delivery import Delivery
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log
from tests.fixtures.push_log import PushLog
from tests.interleavings.steps import lock_rows, open_transaction, until_waiting

_WAIT = 8 * SECOND


async def _claimed_after_a_wait(log: Log, now: datetime, **options: object) -> list[Delivery]:
    """What a claim hands out that waits for the cursor's lock; the clock goes on meanwhile."""
    time = now
    async with open_transaction(log.database) as other:
        await lock_rows(other, "cursors")
        claim = asyncio.create_task(log.pull(now=now, clock=lambda: time, **options))
        await until_waiting(log.database)
        time = now + _WAIT
    return await claim


async def _leases(log: Log) -> list[timedelta]:
    """How long after the start the leases of what is out end."""
    rows = await log.rows(
        "SELECT next_delivery_at FROM delivery_attempts WHERE status = 'delivering' ORDER BY attempt_id"
    )
    return [until - log.start for (until,) in rows]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_claim_that_waits_for_its_lock_shortens_no_lease(
    log: Log, ordered: bool, exactly_once: bool
) -> None:
    options = {"ordered": ordered, "exactly_once": exactly_once}
    await log.publish("a", key="k" if ordered else "")
    [first] = await _claimed_after_a_wait(log, log.start, **options)
    assert await _leases(log) == [_WAIT + ACK_DEADLINE]
    again = log.start + _WAIT + ACK_DEADLINE
    [second] = await _claimed_after_a_wait(log, again, **options)
    assert second.attempt_id != first.attempt_id
    assert await _leases(log) == [2 * (_WAIT + ACK_DEADLINE)]


async def test_nor_does_one_for_push(push_log: PushLog) -> None:
    await push_log.log.publish("a")
    await push_log.claim_for(push_log.target(0), clock=lambda: push_log.start + _WAIT)
    assert await _leases(push_log.log) == [_WAIT + ACK_DEADLINE]


async def test_parts_that_are_merged_again_and_again_make_no_lease_much_longer(log: Log) -> None:
    """Not though others of the attempt are extended all the time, each a little later than the last."""
    await log.publish(*map(str, range(200)))
    [delivery] = await log.pull()
    for ordinal in range(200):
        now = log.start + ordinal * SECOND / 10
        await log.modify_ack_deadline(delivery, [ordinal], now + ACK_DEADLINE)
        await log.merge_parts(delivery, now=now)
    rows = await log.rows("SELECT open::text, next_delivery_at FROM delivery_attempts")
    for bits, until in rows:
        asked = log.start + bits.index("1") * SECOND / 10 + ACK_DEADLINE
        assert asked <= until <= asked + SECOND / 2
    assert len(rows) < 100


@pytest.mark.parametrize("failure", ["nack", "push 500"])
async def test_parts_of_different_meaning_are_not_merged(log: Log, failure: str) -> None:
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    soon = log.start + SECOND
    await log.modify_ack_deadline(delivery, [0], soon)
    await log.nack(delivery, [1], now=soon)
    await log.modify_ack_deadline(delivery, [2], soon, nack=True, failure=failure)
    await log.merge_parts(delivery)
    states = sorted((status, bits) for status, _, bits in await log.attempts())
    if failure == "nack":
        assert states == [("delivering", "100"), ("nacked", "011")]
    else:
        assert states == [("delivering", "100"), ("nacked", "001"), ("nacked", "010")]


async def test_an_ack_deadline_that_has_passed_is_not_merged_into_one_that_has_not(log: Log) -> None:
    """With exactly-once delivery it is final."""
    await log.publish("a", "b")
    [delivery] = await log.pull(exactly_once=True)
    until = log.in_a_cell
    await log.modify_ack_deadline(delivery, [0], until)
    await log.modify_ack_deadline(delivery, [1], until + 0.1 * SECOND)
    await log.merge_parts(delivery, now=until + 0.05 * SECOND)
    assert sorted(bits for *_, bits in await log.attempts()) == ["01", "10"]
    await log.merge_parts(delivery, now=until - 50 * SECOND)
    assert [bits for *_, bits in await log.attempts()] == ["11"]


async def test_a_clock_that_was_set_back_shortens_no_lease_either(log: Log) -> None:
    await log.publish("a")
    await log.pull(clock=lambda: log.start - _WAIT)
    assert await _leases(log) == [ACK_DEADLINE]
