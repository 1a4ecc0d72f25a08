"""A flush of acks and deadline changes is few statements, and none of them is too large (C7)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from broker.core.acking import ack_writer
from broker.core.acking.ack_batch import Batch, NewDeadline
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.ack_writer import AckWriter
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.model.ack_id import AttemptName
from broker.model.retry_policy import RetryPolicy
from tests.fixtures.core import make_core
from tests.fixtures.log import Log

PROJECT = "projects/p"


@pytest.fixture
async def acks(log: Log) -> AsyncIterator[AckCoalescer]:
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    core = make_core(log.database, clock, tasks)
    activity = SubscriptionActivity(log.database, clock)
    yield AckCoalescer(core, AckWriter(core), activity, flushes_at_once=3)
    await tasks.close()


async def _transactions(log: Log) -> int:
    """How many have written what the rows of delivery_attempts are now."""
    [(number,)] = await log.rows("SELECT count(DISTINCT xmin::text) FROM delivery_attempts")
    return int(number)


async def test_messages_of_a_response_that_failed_in_different_ways_are_nacked_by_one_statement(
    log: Log, acks: AckCoalescer
) -> None:
    """Each push of it may have been answered with a status of its own."""
    await log.publish(*"abcde")
    [delivery] = await log.pull()
    name = log.name(delivery)
    policy = RetryPolicy(minimum_backoff=timedelta(seconds=10))
    nacks = [
        acks.modify_ack_deadline(
            {name: {ordinal}}, NewDeadline(0, "nacked", policy, failure=f"push 50{ordinal}"), project=PROJECT
        )
        for ordinal in range(4)
    ]
    assert await asyncio.gather(*nacks) == [{}] * 4
    rows = await log.rows("SELECT open::text, status, failure FROM delivery_attempts ORDER BY open DESC")
    assert rows == [
        ("10000", "nacked", "push 500"),
        ("01000", "nacked", "push 501"),
        ("00100", "nacked", "push 502"),
        ("00010", "nacked", "push 503"),
        ("00001", "delivering", None),
    ]
    assert await _transactions(log) == 1


async def test_a_row_that_moves_whole_in_parts_leaves_nothing_behind(log: Log, acks: AckCoalescer) -> None:
    await log.publish(*"abc")
    [delivery] = await log.pull()
    name = log.name(delivery)
    await asyncio.gather(
        acks.modify_ack_deadline({name: {0, 2}}, NewDeadline(0, "nacked", failure="push 500"), project=PROJECT),
        acks.modify_ack_deadline({name: {1}}, NewDeadline(30), project=PROJECT),
    )
    rows = await log.rows("SELECT open::text, status, failure FROM delivery_attempts ORDER BY open DESC")
    assert rows == [("101", "nacked", "push 500"), ("010", "delivering", None)]


async def test_what_is_stale_in_one_part_is_told_beside_another_that_is_not(log: Log, acks: AckCoalescer) -> None:
    await log.publish(*"abc")
    [delivery] = await log.pull()
    name = log.name(delivery)
    await log.acknowledge(delivery, [1])
    answers = await asyncio.gather(
        acks.modify_ack_deadline({name: {0, 1}}, NewDeadline(20), project=PROJECT),
        acks.modify_ack_deadline({name: {2}}, NewDeadline(30), project=PROJECT),
    )
    assert answers == [{name: {1}}, {}]


@pytest.mark.parametrize("ordered", [False, True])
async def test_acks_of_many_attempts_are_written_by_statements_of_a_bounded_number(
    log: Log, acks: AckCoalescer, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    """With ordering keys an attempt is a key's: a flush may have as many as there are messages."""
    monkeypatch.setattr(ack_writer, "MAX_STATEMENT_ATTEMPTS", 2)
    names = {}
    for key in "abcde":
        await log.publish("1", "2", key=key if ordered else "")
        [delivery] = await log.pull(ordered=ordered)
        names[log.name(delivery)] = {0}
    await acks.acknowledge(names, project=PROJECT)
    assert [bits for _, _, bits in await log.attempts()] == ["01"] * 5
    assert await _transactions(log) == 3


_SECONDS_LEFT = "SELECT extract(epoch FROM next_delivery_at - clock_timestamp())::float8 FROM delivery_attempts"


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_messages_that_are_extended_one_by_one_do_not_stay_as_many_parts(
    log: Log, acks: AckCoalescer, *, exactly_once: bool
) -> None:
    """Each statement about an attempt reads all its parts."""
    count = 4 * ack_writer.PARTS_BEFORE_MERGE
    await log.publish(*map(str, range(count)))
    [delivery] = await log.pull(exactly_once=exactly_once)
    name = log.name(delivery)
    deadline = NewDeadline(600, exactly_once=exactly_once)
    for ordinal in range(count):
        assert await acks.modify_ack_deadline({name: {ordinal}}, deadline, project=PROJECT) == {}
    # More would take more than half a minute: a sixteenth of the 512 seconds that are left at least.
    assert len(await log.attempts()) <= 3
    assert all(560 < left < 600 + 32 for (left,) in await log.rows(_SECONDS_LEFT))
    for _ in range(2):
        refused = await acks.acknowledge({name: set(range(count))}, project=PROJECT, exactly_once=exactly_once)
        assert not refused
    assert not any("1" in bits for _, _, bits in await log.attempts())


async def test_messages_that_are_nacked_one_by_one_come_together(log: Log, acks: AckCoalescer) -> None:
    await log.publish(*map(str, range(ack_writer.PARTS_BEFORE_MERGE)))
    [delivery] = await log.pull()
    for ordinal in range(ack_writer.PARTS_BEFORE_MERGE - 1):
        await acks.modify_ack_deadline(
            {log.name(delivery): {ordinal}}, NewDeadline(0, "nacked", failure="nack"), project=PROJECT
        )
    last = {log.name(delivery): {ack_writer.PARTS_BEFORE_MERGE - 1}}
    await acks.modify_ack_deadline(last, NewDeadline(0, "nacked", failure="push 500"), project=PROJECT)
    rows = await log.rows("SELECT bit_count(open), status, failure FROM delivery_attempts ORDER BY 1")
    assert rows == [(1, "nacked", "push 500"), (ack_writer.PARTS_BEFORE_MERGE - 1, "nacked", "nack")]


class _Counted(NewDeadline):
    """`asked`: how often messages that get it were told apart from others."""

    asked = 0

    def __hash__(self) -> int:
        _Counted.asked += 1
        return hash(self.seconds)


async def test_a_thousand_messages_that_are_nacked_alike_are_not_told_apart_one_by_one() -> None:
    attempt, deadline = AttemptName(1, 1, 1, 1_000), _Counted(0, "nacked")
    batch = Batch(asyncio.get_running_loop().create_future())
    batch.change(attempt, range(1_000), deadline)
    [[(_, (_, ordinals))]] = ack_writer._waves(batch.not_acked())
    assert ordinals == set(range(1_000))
    assert _Counted.asked < 10
