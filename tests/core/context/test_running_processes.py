"""Which process delivers to which push subscription, and whom nobody tells, as processes come and go (0010)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from broker.core.context.running_processes import GONE_AFTER, RunningProcesses
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database

SUBSCRIPTIONS = range(2_000)


class SetClock(DatabaseClock):
    """Goes on when it is told to."""

    def __init__(self, now: datetime) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time

    def move(self, delta: timedelta) -> None:
        self.time += delta


class Process(RunningProcesses):
    """Counts how often it was told to look."""

    def __init__(self, database: Database, clock: SetClock) -> None:
        super().__init__(database, clock, changed=lambda: None, poll=self.checked)
        self.replica_reads = 0

    def checked(self) -> None:
        self.replica_reads += 1


@pytest.fixture
async def clock(database: Database) -> SetClock:
    return SetClock(await database.now())


@pytest.fixture
def start(database: Database, clock: SetClock) -> Callable[[], Process]:
    return lambda: Process(database, clock)


async def heartbeats(*running: Process) -> None:
    for _ in range(2):  # the second hears what the last one said in the first
        for process in running:
            await process.run_once()


def owners(*running: Process) -> dict[int, Process]:
    """Who delivers; exactly one must."""
    found = {}
    for subscription_id in SUBSCRIPTIONS:
        [found[subscription_id]] = [process for process in running if process.owns(subscription_id)]
    return found


def moved(before: dict[int, Process], after: dict[int, Process]) -> list[int]:
    return [id_ for id_ in SUBSCRIPTIONS if before[id_] is not after[id_]]


async def test_a_process_that_joins_takes_its_share_and_moves_nothing_else(start: Callable[[], Process]) -> None:
    first, second, third = start(), start(), start()
    await heartbeats(first, second)
    before = owners(first, second)
    await heartbeats(first, second, third)
    after = owners(first, second, third)
    taken = moved(before, after)
    assert all(after[id_] is third for id_ in taken)
    assert len(SUBSCRIPTIONS) / 4 < len(taken) < len(SUBSCRIPTIONS) / 2.4, "about a third"


async def test_a_process_that_leaves_gives_its_share_to_the_others_at_once(start: Callable[[], Process]) -> None:
    first, second, third = start(), start(), start()
    await heartbeats(first, second, third)
    before = owners(first, second, third)
    await third.leave()
    await heartbeats(first, second)
    after = owners(first, second)
    assert all(before[id_] is third for id_ in moved(before, after))


async def test_a_process_that_was_killed_is_missed_after_some_seconds(
    start: Callable[[], Process], clock: SetClock
) -> None:
    first, killed = start(), start()
    await heartbeats(first, killed)
    clock.move(timedelta(seconds=2))
    await first.run_once()
    assert any(not first.owns(id_) for id_ in SUBSCRIPTIONS), "not yet"
    clock.move(GONE_AFTER - timedelta(seconds=1))
    await first.run_once()
    assert all(first.owns(id_) for id_ in SUBSCRIPTIONS)


async def test_after_an_absence_of_the_database_nothing_has_moved(
    start: Callable[[], Process], clock: SetClock
) -> None:
    """Or the first process to reach it again would take everything, and give it back a second later."""
    first, second = start(), start()
    await heartbeats(first, second)
    before = owners(first, second)
    clock.move(timedelta(minutes=1))
    await first.run_once()
    assert moved(before, owners(first, second)) == []
    clock.move(timedelta(seconds=1))
    await heartbeats(first, second)
    assert moved(before, owners(first, second)) == []


async def test_who_did_not_survive_the_absence_is_missed_all_the_same(
    start: Callable[[], Process], clock: SetClock
) -> None:
    first, second = start(), start()
    await heartbeats(first, second)
    clock.move(timedelta(minutes=1))
    for _ in range(6):
        await first.run_once()
        clock.move(timedelta(seconds=1))
    assert all(first.owns(id_) for id_ in SUBSCRIPTIONS)
    assert second is not first


async def test_a_process_is_alone_until_it_hears_of_another_one(start: Callable[[], Process]) -> None:
    first, second = start(), start()
    assert not first.is_alone(), "it has not asked yet"
    await first.run_once()
    assert first.is_alone()
    await second.run_once()
    assert not second.is_alone()
    await first.run_once()
    assert not first.is_alone()
    await second.leave()
    await first.run_once()
    assert first.is_alone()


async def test_who_cannot_ask_any_more_does_not_count_as_alone(
    start: Callable[[], Process], clock: SetClock
) -> None:
    process = start()
    await process.run_once()
    clock.move(GONE_AFTER)
    assert not process.is_alone()


async def test_who_joins_looks_by_itself_as_long_as_others_may_not_know_of_it(
    start: Callable[[], Process], clock: SetClock
) -> None:
    """What it looks for lies there from before `first` knew of it: nothing is sent while `first` is alone."""
    first, second = start(), start()
    await first.run_once()
    assert first.replica_reads == 0
    while first.is_alone():  # with the last thing that it has heard
        await second.run_once()
        clock.move(timedelta(seconds=1))
    assert second.replica_reads > 0
    replica_reads = second.replica_reads
    await second.run_once()
    assert second.replica_reads == replica_reads + 1, "once more, for what happened after the look before"
    for _ in range(10):
        clock.move(timedelta(seconds=1))
        await heartbeats(first, second)
    replica_reads = second.replica_reads
    await second.run_once()
    assert second.replica_reads == replica_reads


async def test_who_was_away_looks_again_when_it_is_back(start: Callable[[], Process], clock: SetClock) -> None:
    first, second = start(), start()
    for _ in range(10):
        await heartbeats(first, second)
        clock.move(timedelta(seconds=1))
    for _ in range(10):
        await first.run_once()
        clock.move(timedelta(seconds=1))
    assert first.is_alone()
    replica_reads = second.replica_reads
    await second.run_once()
    assert second.replica_reads > replica_reads


class _Counts:
    """SharedCounts that keep what they hear."""

    def __init__(self, **reported: int) -> None:
        self._reported = reported
        self.others: Sequence[Mapping[str, int]] = ()

    def report(self) -> Mapping[str, int]:
        return self._reported

    def heard(self, reported: Mapping[str, int], others: Sequence[Mapping[str, int]]) -> None:
        assert reported == self._reported
        self.others = others


async def test_processes_tell_each_other_their_counts_beside_one_that_has_none(
    start: Callable[[], Process],
) -> None:
    one, two, without = start(), start(), start()
    one.shared_counts, two.shared_counts = of_one, of_two = _Counts(p=3), _Counts(p=4, q=1)
    await heartbeats(one, two, without)
    assert sorted(of_one.others, key=len) == [{}, {"p": 4, "q": 1}]
    assert sorted(of_two.others, key=len) == [{}, {"p": 3}]
