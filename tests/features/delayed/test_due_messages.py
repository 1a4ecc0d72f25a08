"""Messages come when they are due, once, whatever clocks do and however many brokers there are (J1)."""

import asyncio
import logging
from datetime import datetime, timedelta

import pytest

from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.features.delayed.rows import find_scheduled_shards
from broker.features.delayed.worker import DueMessages
from broker.model.message_id import FIRST_ID_SEQ, message_id
from tests.features.delayed.test_scheduled_messages import schedule
from tests.fixtures.core import make_core
from tests.fixtures.log import SECOND, Log, make_log, texts
from tests.fixtures.outbox import Hand


def worker(log: Log, clock: Hand) -> DueMessages:
    """As of a process of its own."""
    return DueMessages(make_core(log.database, clock), NextDue())


@pytest.fixture
def clock(log: Log) -> Hand:
    clock = Hand(log.database)
    clock.moment = log.start
    return clock


async def came(log: Log, clock: Hand) -> list[str]:
    found = []
    for delivery in await log.pull(now=clock.moment + SECOND):
        found += texts([delivery])
        await log.acknowledge(delivery)
    return found


async def test_a_clock_that_steps_brings_nothing_again_and_two_brokers_bring_nothing_twice(
    log: Log, clock: Hand
) -> None:
    await schedule(log, *((f"{n}", n) for n in range(1, 31)))
    workers = [worker(log, clock) for _ in range(2)]
    for seconds in (5, 2, 4, 6, 20, 1, 19, 30):
        clock.moment = log.start + seconds * SECOND
        await asyncio.gather(*(each.run_once() for each in workers))
    assert sorted(await came(log, clock), key=int) == [f"{n}" for n in range(1, 31)]


async def test_one_who_starts_in_the_middle_of_due_times_goes_on_where_the_last_one_ended(
    log: Log, clock: Hand
) -> None:
    await schedule(log, *((f"{n}", n) for n in range(1, 11)))
    found = []
    for seconds in (3, 3, 7, 10):
        clock.moment = log.start + seconds * SECOND
        until = await worker(log, clock).run_once()
        assert until > clock.moment
        found.append(await came(log, clock))
    assert found == [["1", "2", "3"], [], ["4", "5", "6", "7"], ["8", "9", "10"]]


class Noting(DueMessages):
    """Notes the shards that it appends to, in their order."""

    def __init__(self, core: Core, next_due: NextDue) -> None:
        super().__init__(core, next_due)
        self.appended: list[int] = []

    async def _append(self, shard_id: int, now: datetime) -> int:
        count = await super()._append(shard_id, now)
        self.appended += [shard_id] * (count > 0)
        return count


async def test_a_project_with_due_messages_of_many_topics_delays_none_of_another(log: Log, clock: Hand) -> None:
    """By the numbers of their shards all of them would come first."""
    greedy = [log, *[await make_log(log.database, log.start, f"t{number}") for number in range(20)]]
    good = await make_log(log.database, log.start, "good")
    await log.execute("UPDATE topics SET name = 'projects/good/topics/t' WHERE name LIKE '%/good'")
    for each in (*greedy, good):
        await schedule(each, ("due", 1))
    clock.moment = log.start + 2 * SECOND
    due = Noting(make_core(log.database, clock), NextDue())
    await due.run_once()
    assert sorted(due.appended) == sorted(each.shard_id for each in (*greedy, good))
    assert max(due.appended) == good.shard_id
    assert due.appended.index(good.shard_id) <= 2


async def test_one_that_cannot_be_published_holds_up_no_other_and_is_told_once(
    log: Log, clock: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    await schedule(log, *((f"{n}", 1) for n in range(20)))
    await log.refuse("7")
    due, id_ = worker(log, clock), message_id(log.shard_id, FIRST_ID_SEQ + 8)
    with caplog.at_level(logging.WARNING):
        for seconds in (1, 22, 43):
            clock.moment = log.start + seconds * SECOND
            await due.run_once()
    assert sorted(await came(log, clock), key=int) == [f"{n}" for n in range(20) if n != 7]
    reported = [record for record in caplog.records if f"message {id_} to come later" in record.getMessage()]
    assert len(reported) == 1
    async with log.session() as session:
        [left] = await find_scheduled_shards(session)
    assert left.due_at == clock.moment + timedelta(seconds=20)
    await log.refuse_no_more()
    clock.moment = left.due_at
    await due.run_once()
    assert await came(log, clock) == ["7"]
