"""One message a tick, whatever is killed and whatever clocks do (J2)."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from broker.core.context.core import Core
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.next_due import NextDue
from broker.core.process.tasks import Tasks
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.quotas.quota import ProjectQuotas
from broker.features.schedules import rows as store
from broker.features.schedules.schedule import KEPT_TICKS, Definition, Missed, Schedule, TickRecord, take_due
from broker.features.schedules.ticker import ScheduleTicker
from broker.features.schedules.worker import AT_ONCE, ScheduleWorker
from broker.features.schemas.schema_checks import SchemaChecks
from broker.features.transforms.topic_transforms import TopicTransforms
from broker.model.errors import Unavailable
from broker.model.names import project_of
from broker.model.topic import Topic
from tests.fixtures.broker import eventually
from tests.fixtures.core import make_core, make_preparation
from tests.fixtures.log import Log, texts

PROJECT = "projects/p"
NAME = f"{PROJECT}/schedules/every-second"
GREEDY, GOOD = "projects/greedy", "projects/good"
SECOND = timedelta(seconds=1)
SEED = 20261124

T = TypeVar("T", bound=ScheduleTicker)


class Hand(DatabaseClock):
    """Time in the hand of a test."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment


class Dying(ScheduleTicker):
    """Its process dies now and then: before the message is appended, before the commit, or after it."""

    dice = random.Random(SEED)
    deaths = 0

    def _dies(self, one_in: int = 4) -> bool:
        dies = self.dice.randrange(one_in) == 0
        self.deaths += dies
        return dies

    async def _append(self, connection: HotConnection, *what: Any) -> tuple[list[str], int | None]:
        if self._dies():
            raise Unavailable("killed before")
        appended = await super()._append(connection, *what)
        if self._dies():
            raise Unavailable("killed behind")
        return appended

    def _report(self, schedule: Schedule, records: Sequence[TickRecord]) -> None:
        if self._dies():
            raise Unavailable("killed after the commit")
        super()._report(schedule, records)


class Noting(ScheduleTicker):
    """Notes whose schedules begin to tick, and have ticked, in order.  Those of `held` projects wait for `go`."""

    def __init__(self, core: Core, schemas: SchemaChecks, transforms: TopicTransforms, **seconds: float) -> None:
        super().__init__(core, schemas, transforms, **seconds)
        self.begun: list[str] = []
        self.ticked: list[str] = []
        self.held: set[str] = set()
        self.go = asyncio.Event()
        self.then: Callable[[], None] = lambda: None

    async def _topic(self, schedule: Schedule) -> tuple[Topic | None, str]:
        self.begun.append(project_of(schedule.name))
        if project_of(schedule.name) in self.held:
            await self.go.wait()
        return await super()._topic(schedule)

    def _report(self, schedule: Schedule, records: Sequence[TickRecord]) -> None:
        super()._report(schedule, records)
        self.ticked.append(project_of(schedule.name))
        self.then()


class Careless(Dying):
    """Commits the message in a transaction of its own."""

    async def _append(self, connection: HotConnection, *what: Any) -> tuple[list[str], int | None]:
        appended = await ScheduleTicker._append(self, connection, *what)
        await connection.run((COMMIT, {}))
        if self._dies():
            raise Unavailable("killed between")
        await connection.run((BEGIN, {}))
        return appended


@dataclass
class Office:
    """What a ticker needs."""

    log: Log
    clock: Hand
    tasks: Tasks
    got: list[str] = field(default_factory=list)

    def ticker(self, **seconds: float) -> ScheduleTicker:
        return self.make(ScheduleTicker, **seconds)

    def make(self, cls: type[T], **seconds: float) -> T:
        core = make_core(self.log.database, self.clock, self.tasks, quotas=ProjectQuotas())
        return cls(core, make_preparation(core), NextDue(), **seconds)

    def worker(self, ticker: ScheduleTicker | None = None) -> ScheduleWorker:
        return ScheduleWorker(make_core(self.log.database, self.clock), ticker or self.ticker(), NextDue())

    async def put(self, missed: Missed = Missed.ONE, name: str = NAME, **fields: Any) -> Schedule:
        fields = {"interval_seconds": 1, "is_template": True, "data": b"{{time}}"} | fields
        definition = Definition(topic=self.log.topic.name, missed=missed, **fields)
        now = self.clock.moment
        known = {"definition": definition, "anchor": now, "created_at": now, "updated_at": now}
        schedule = Schedule(name=name, next_at=now + SECOND, **known)
        async with self.log.database.transaction() as connection:
            await store.write_schedule(connection, schedule=schedule)
        return schedule

    async def history(self) -> list[TickRecord]:
        async with self.log.database.transaction() as connection:
            found = await store.list_ticks(connection, name=NAME, before=2**62, size=1_000)
        return list(reversed(found))

    async def came(self) -> list[float]:
        """The ticks of the messages that there are, in seconds behind the start."""
        while found := await self.log.pull(now=self.clock.moment + SECOND):
            self.got += texts(found)
        return [(datetime.fromisoformat(text) - self.log.start).total_seconds() for text in self.got]

    def after(self, seconds: float) -> None:
        self.clock.moment = self.log.start + timedelta(seconds=seconds)


@pytest.fixture
async def office(log: Log) -> AsyncIterator[Office]:
    clock, tasks = Hand(log.database), Tasks()
    clock.moment = log.start
    yield Office(log, clock, tasks)
    await tasks.close()


async def _run_until(office: Office, seconds: int, *tickers: ScheduleTicker) -> None:
    for second in range(1, seconds + 1):
        office.after(second + 0.25)
        idle = 0
        while idle < len(tickers):
            idle = 0
            for ticker in tickers:
                with suppress(Unavailable):
                    idle += await ticker.tick_due(PROJECT) is None
    # The session of a dead one may still have its lock, and the others may pass its schedule by for some seconds.
    survivor = office.ticker()

    async def is_done() -> bool:
        await survivor.tick_due(PROJECT)
        async with office.log.database.transaction() as connection:
            schedule = await store.find_schedule(connection, name=NAME)
        return schedule is not None and schedule.next_at is not None and schedule.next_at > office.clock.moment

    await eventually(is_done)


async def test_each_tick_is_one_message_however_often_brokers_die(office: Office) -> None:
    await office.put()
    dying = [office.make(Dying) for _ in range(2)]
    await _run_until(office, 40, *dying)
    # While the dead one's session still has its lock, ticks gather: a loaded machine has fewer deaths.
    assert sum(ticker.deaths for ticker in dying if isinstance(ticker, Dying)) >= 5
    assert await office.came() == list(range(1, 41))
    history = await office.history()
    assert [record.number for record in history] == list(range(1, 41))
    assert len({record.message_id for record in history}) == 40


async def test_a_message_that_has_a_transaction_of_its_own_is_found_out(office: Office) -> None:
    await office.put()
    await _run_until(office, 40, office.make(Careless))
    came = await office.came()
    assert len(came) > len(set(came)) == 40


async def test_two_brokers_at_once_double_nothing(office: Office) -> None:
    for number in range(10):
        await office.put(name=f"projects/p/schedules/s{number}", data=b"{{time}}")
    workers = [office.worker() for _ in range(2)]
    for second in range(1, 6):
        office.after(second)
        await asyncio.gather(*(worker.run_once() for worker in workers))
    assert sorted(await office.came()) == sorted(list(range(1, 6)) * 10)


async def test_a_clock_that_steps_back_ticks_nothing_again_and_one_that_steps_on_leaves_out_nothing(
    office: Office,
) -> None:
    await office.put()
    ticker = office.ticker()
    for seconds in (5, 2, 4, 6, 30, 1, 31):
        office.after(seconds)
        while await ticker.tick_due(PROJECT) is not None:
            pass
    assert await office.came() == list(range(1, 32))


@pytest.mark.parametrize(
    ("missed", "came"),
    [
        (Missed.SKIP, list(range(140, 201))),
        (Missed.ONE, list(range(139, 201))),
        (Missed.ALL, list(range(1, 201))),
    ],
)
async def test_what_was_missed_while_no_broker_ran(office: Office, missed: Missed, came: list[int]) -> None:
    """Two hundred seconds; what is late by a minute is not missed."""
    await office.put(missed)
    office.after(200)
    ticker = office.ticker()
    while await ticker.tick_due(PROJECT) is not None:
        pass
    assert await office.came() == came
    history = await office.history()
    assert len(history) == min(KEPT_TICKS, len(came) + (missed is not Missed.ALL))
    missed_ones = [record for record in history if record.outcome == "MISSED"]
    assert [record.number for record in missed_ones] == ([1] if missed is not Missed.ALL else [])


async def test_a_year_of_seconds_costs_no_more_than_a_minute(office: Office) -> None:
    schedule = await office.put(interval_seconds=0, cron="* * * * * *")
    assert schedule.next_at is not None
    schedule = replace(schedule, next_at=schedule.next_at.replace(microsecond=0))
    for missed in Missed:
        of_it = replace(schedule, definition=replace_missed(schedule.definition, missed))
        due = take_due(of_it, office.log.start + timedelta(days=365))
        assert due.missed is not None
        assert len(due.ticks) <= 100
        days = (due.ticks[0] - office.log.start) / timedelta(days=1)
        assert round(days) == (364 if missed is Missed.ALL else 365)


def replace_missed(definition: Definition, missed: Missed) -> Definition:
    return Definition(topic=definition.topic, cron=definition.cron, missed=missed)


@pytest.mark.parametrize(
    "broken",
    ["""'{"topic": 1}'""", """definition || '{"cron": "* * * * *", "timeZone": "Mars/Base"}'"""],
)
async def test_one_that_cannot_tick_holds_up_no_other_and_is_told_once(
    office: Office, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """Another release wrote it, or its time zone is gone."""
    poison = "projects/p/schedules/poison"
    await office.put(name=poison)
    await office.log.execute(f"UPDATE schedules SET definition = {broken}")
    office.after(0.5)
    await office.put()
    worker = office.worker()
    with caplog.at_level(logging.WARNING):
        for seconds in (2, 3, 25, 26):
            office.after(seconds)
            assert await worker.run_once() > office.clock.moment
    assert sorted(await office.came()) == [n + 0.5 for n in range(1, 26)]
    assert len([record for record in caplog.records if f"{poison} cannot tick" in record.getMessage()]) == 1


async def test_a_topic_that_cannot_be_read_just_now_has_refused_nothing(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick is still to come."""
    await office.put()
    ticker = office.ticker()
    office.after(1)

    async def away(name: str) -> None:
        raise Unavailable("The database cannot be reached.")

    with monkeypatch.context() as patched:
        patched.setattr(ticker._resources, "topic", away)
        assert await ticker.tick_due(PROJECT) == ()
    office.after(2)
    while await ticker.tick_due(PROJECT) is not None:
        pass
    assert await office.came() == [1.0, 2.0]


async def test_one_whose_topic_cannot_be_read_just_now_holds_up_no_other(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to end the worker, which began with it again."""
    away = "projects/p/topics/away"
    slow = "projects/p/schedules/slow"
    await office.put(name=slow)
    await office.log.execute(f"UPDATE schedules SET definition = jsonb_set(definition, '{{topic}}', '\"{away}\"')")
    office.after(0.5)
    await office.put()
    ticker = office.ticker()
    real = ticker._resources.topic

    async def topic(name: str) -> object:
        if name == away:
            raise Unavailable("The server cannot be reached.")
        return await real(name)

    monkeypatch.setattr(ticker._resources, "topic", topic)
    worker = office.worker(ticker)
    with caplog.at_level(logging.WARNING):
        for seconds in range(2, 6):
            office.after(seconds)
            assert await worker.run_once() > office.clock.moment
    assert sorted(await office.came()) == [n + 0.5 for n in range(1, 5)]
    assert len([line for line in caplog.messages if f"{slow} cannot tick" in line]) == 1


# --- projects take turns -------------------------------------------------------------------------------------


async def _put_many(office: Office, count: int) -> None:
    for number in range(count):
        await office.put(name=f"{GREEDY}/schedules/s{number:03}")


async def test_a_project_with_many_due_schedules_delays_no_ticks_of_another(office: Office) -> None:
    """They are due at the same time, and would all be first by the names or by the time."""
    await _put_many(office, 40)
    await office.put(name=f"{GOOD}/schedules/one")
    await office.log.execute(f"UPDATE schedules SET next_at = next_at + '1 ms' WHERE name LIKE '{GOOD}/%'")
    office.after(1.5)
    ticker = office.make(Noting)
    await office.worker(ticker).run_once()
    assert sorted(ticker.ticked) == [GOOD] + [GREEDY] * 40
    assert ticker.begun.index(GOOD) <= 2 * AT_ONCE


async def test_a_tick_that_comes_due_meanwhile_waits_for_a_turn_and_not_for_the_backlog(office: Office) -> None:
    await _put_many(office, 150)
    await office.put(name=f"{GOOD}/schedules/one")
    await office.log.execute(f"UPDATE schedules SET next_at = next_at + '9 s' WHERE name LIKE '{GOOD}/%'")
    ticker = office.make(Noting)

    def later() -> None:
        if len(ticker.ticked) == 20:
            office.after(10.5)

    ticker.then = later
    office.after(1.5)
    await office.worker(ticker).run_once()
    assert ticker.ticked.index(GOOD) < len(ticker.ticked) - 1
    assert ticker.ticked.count(GREEDY) >= 150


async def test_projects_whose_ticks_take_long_leave_a_turn_to_others(office: Office) -> None:
    """As many of them as there are turns hang: they are known to take long."""
    greedy = {f"{GREEDY}{number}" for number in range(AT_ONCE)}
    for project in greedy:
        await office.put(name=f"{project}/schedules/s")
    ticker = office.make(Noting)
    ticker.held = greedy
    worker = office.worker(ticker)
    worker._long = set(greedy)
    await office.put(name=f"{GOOD}/schedules/one")
    office.after(1.5)
    running = asyncio.create_task(worker.run_once())
    try:
        await eventually(lambda: ticker.ticked == [GOOD])
        assert not running.done()
    finally:
        ticker.go.set()
        await running
    assert set(ticker.ticked) == {GOOD, *greedy}


async def test_a_transaction_that_takes_long_leaves_its_other_ticks_to_the_next_one(office: Office) -> None:
    await office.put(Missed.ALL)
    office.after(70)
    ticker = office.ticker(turn_seconds=0.0)
    turns = 0
    while (records := await ticker.tick_due(PROJECT)) is not None:
        assert len(records) == 1
        turns += 1
    assert turns == 70
    assert await office.came() == list(range(1, 71))


async def test_a_tick_whose_message_takes_too_long_is_refused_and_says_so(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.put()
    ticker = office.ticker(message_seconds=0.01)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ticker, "_checked", never)
    office.after(1)
    while await ticker.tick_due(PROJECT) is not None:
        pass
    [record] = await office.history()
    assert record.outcome == "REFUSED"
    assert "took longer than 0.01 s" in record.reason
