"""Operations go on where they were, whatever is killed; shown by redrives, whose counts are exact (G1)."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from broker.core.context.core import Core
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.retention.retention_janitor import RetentionJanitor
from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.dead_letters import dead_letter_groups
from broker.features.dead_letters.chosen import to_json
from broker.features.dead_letters.redriving.operation import RedriveKind
from broker.features.operations import rows as store
from broker.features.operations import runner as runner_module
from broker.features.operations.operation import Operation, Step
from broker.features.operations.runner import Kind, OperationRunner
from broker.features.operations.targets import Targets
from broker.model.errors import FailedPrecondition, Unavailable
from broker.model.operation_verb import Verb
from broker.model.page import Page
from tests.fixtures.core import make_core, make_preparation
from tests.fixtures.dead_letters import DeadLetters, make_dead_letters
from tests.fixtures.log import Log, make_log, texts

MESSAGES = 120
SEED = 20261123


@dataclass
class Dying:
    """A kind whose process dies now and then: before its work, or after it and before the commit."""

    kind: Kind
    dice: random.Random
    deaths: int = 0

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        when = self.dice.randrange(3)
        if when == 0:
            await self._die(connection)
        step = await self.kind.step(connection, operation)
        if when == 1:
            await self._die(connection)
        return step

    async def _die(self, connection: HotConnection) -> None:
        self.deaths += 1
        await connection.close()
        raise Unavailable("killed")

    def committed(self, operation: Operation, step: Step) -> None:
        self.kind.committed(operation, step)


class Careless(OperationRunner):
    """Writes down how far it has come in a transaction of its own, before the work."""

    async def _step(self, connection: HotConnection, operation: Operation) -> Step:
        step = await self._kind(operation).step(connection, operation)
        await connection.run((COMMIT, {}))
        await self._killed_here(connection)
        await connection.run((BEGIN, {}), store.step_written(operation, step, self._clock.now()), (COMMIT, {}))
        return step

    killings = 0

    async def _killed_here(self, connection: HotConnection) -> None:
        self.killings += 1
        if self.killings % 3 == 0:
            await connection.close()
            raise Unavailable("killed")


@dataclass
class Office:
    """What a runner needs."""

    dead_letters: DeadLetters
    clock: DatabaseClock
    tasks: Tasks

    @property
    def database(self) -> Database:
        return self.dead_letters.log.database

    def core(self) -> Core:
        return make_core(self.database, self.clock, self.tasks)

    def kind(self) -> RedriveKind:
        core = self.core()
        return RedriveKind(core, Targets(core, make_preparation(core)))

    def runner(self, kind: Kind, cls: type[OperationRunner] = OperationRunner) -> OperationRunner:
        return cls(self.core(), {Verb.REDRIVE: kind})

    async def start(self, verb: Verb = Verb.REDRIVE, *, project: str = "projects/p", **request: Any) -> str:
        now = self.clock.now()
        log = self.dead_letters.log
        wanted = self.dead_letters.wanted(now=now)
        operation = Operation(
            name=f"{project}/operations/{now.timestamp():.6f}",
            project=project,
            verb=verb,
            target=log.subscription.name,
            request={"chosen": to_json(wanted.chosen), "consumable": list(wanted.consumable), **request},
            total=MESSAGES,
            created_at=now,
            updated_at=now,
            next_step_at=now,
        )
        async with self.database.transaction() as connection:
            await store.insert_operation(connection, operation=operation)
        return operation.name

    async def find(self, name: str) -> Operation:
        async with self.database.transaction() as connection:
            operation = await store.find_operation(connection, name=name)
        assert operation is not None
        return operation

    async def run(self, *runners: OperationRunner, name: str) -> Operation:
        """By turns, until it has ended."""
        while (operation := await self.find(name)).ended_at is None:
            for runner in runners:
                with suppress(Unavailable):
                    await runner.run_once()
        return operation

    async def came_back(self) -> list[str]:
        """Pulled, all at once, for the first time."""
        found: list[str] = []
        while deliveries := await self.dead_letters.log.pull(
            ordered=self.dead_letters.ordered, now=self.clock.now()
        ):
            found += texts(deliveries)
            assert {delivery.attempt_number for delivery in deliveries} == {1}
        return found


@pytest.fixture
async def office(log: Log, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    """Dead letters of three keys; seven messages a step."""
    monkeypatch.setattr("broker.features.dead_letters.redriving.operation.step_size", lambda _: 7)
    monkeypatch.setattr(runner_module, "_AGAIN", runner_module._AGAIN * 0)
    dead_letters = await make_dead_letters(log, ordered=True)
    for number in range(MESSAGES):
        await log.publish(f"{number}", key="abc"[number % 3])
    await dead_letters.fail()
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    yield Office(dead_letters, clock, tasks)
    await tasks.close()


@pytest.mark.slow
@pytest.mark.ci
async def test_counts_are_exact_and_keys_in_order_however_often_it_dies(office: Office) -> None:
    dice = random.Random(SEED)
    dying = [Dying(office.kind(), dice) for _ in range(2)]
    name = await office.start()
    ended = await office.run(*(office.runner(kind) for kind in dying), name=name)
    assert sum(kind.deaths for kind in dying) > 10
    assert (ended.state, ended.done, ended.total, ended.counts) == (
        "SUCCEEDED",
        MESSAGES,
        MESSAGES,
        {"redriven": MESSAGES},
    )
    came_back = await office.came_back()
    assert Counter(came_back) == Counter(str(number) for number in range(MESSAGES))
    for key in range(3):
        of_key = [int(text) for text in came_back if int(text) % 3 == key]
        assert of_key == sorted(of_key)
    assert await office.dead_letters.dead.pull(ordered=True, now=office.clock.now()) == []


@pytest.mark.slow
@pytest.mark.ci
async def test_what_is_sent_to_another_topic_is_there_once_however_often_it_dies(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of each key, and nothing of it comes back; a step sends fewer than it has seen to, by bytes."""
    monkeypatch.setattr(dead_letter_groups, "_MAX_BYTES", 30)
    log = office.dead_letters.log
    other = await make_log(office.database, log.start, "elsewhere")
    dice = random.Random(SEED)
    dying = [Dying(office.kind(), dice) for _ in range(2)]
    name = await office.start(targetTopic=other.topic.name, targetId=other.topic.topic_id)
    ended = await office.run(*(office.runner(kind) for kind in dying), name=name)
    assert sum(kind.deaths for kind in dying) > 10
    assert (ended.state, ended.done, ended.counts) == ("SUCCEEDED", MESSAGES, {"sent": MESSAGES})
    sent = texts(await other.pull(now=office.clock.now()))
    assert Counter(sent) == Counter(str(number) for number in range(MESSAGES))
    for key in range(3):
        of_key = [int(text) for text in sent if int(text) % 3 == key]
        assert of_key == sorted(of_key)
    for each in (log, office.dead_letters.dead):
        assert await each.pull(ordered=True, now=office.clock.now()) == []
    assert await log.rows("SELECT count(*) FROM dead_letters") == [(0,)]


async def test_a_cursor_that_moves_in_a_transaction_of_its_own_is_found_out(office: Office) -> None:
    """The same look at counts sees that steps were done which nobody has written down."""
    name = await office.start()
    ended = await office.run(office.runner(office.kind(), Careless), name=name)
    assert ended.done < MESSAGES
    assert len(await office.came_back()) == MESSAGES


async def test_two_processes_at_once_share_the_work_and_double_nothing(office: Office) -> None:
    name = await office.start()
    runners = [office.runner(office.kind()) for _ in range(2)]
    ends = await asyncio.gather(*(office.run(runner, name=name) for runner in runners))
    assert {end.done for end in ends} == {MESSAGES}
    assert len(await office.came_back()) == MESSAGES


async def test_a_rate_is_kept_by_all_together(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is not begun before its time, whoever asks."""
    monkeypatch.undo()
    name = await office.start(maxMessagesPerSecond=20)
    runners = [office.runner(office.kind()) for _ in range(2)]
    for runner in (*runners, *runners):
        await runner.run_once()
    running = await office.find(name)
    elapsed = (running.updated_at - running.created_at).total_seconds()
    assert 0 < running.done <= 2 + 20 * elapsed
    assert running.next_step_at > running.created_at


async def test_what_cannot_be_done_ends_it_with_the_reason(office: Office) -> None:
    @dataclass
    class Refused:
        async def step(self, connection: HotConnection, operation: Operation) -> Step:
            raise FailedPrecondition("The subscription is detached.")

        def committed(self, operation: Operation, step: Step) -> None: ...

    name = await office.start()
    ended = await office.run(office.runner(Refused()), name=name)
    assert (ended.state, ended.error_code, ended.error_message) == (
        "FAILED",
        "FAILED_PRECONDITION",
        "The subscription is detached.",
    )


async def test_one_that_makes_no_progress_lets_the_others_go_before_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "_AGAIN", runner_module.timedelta(hours=1))
    kind = office.kind()

    @dataclass
    class Stuck:
        name: str

        async def step(self, connection: HotConnection, operation: Operation) -> Step:
            if operation.name == self.name:
                raise Unavailable("The database took too long; try again.")
            return await kind.step(connection, operation)

        def committed(self, operation: Operation, step: Step) -> None: ...

    stuck, other = await office.start(), await office.start()
    ended = await office.run(office.runner(Stuck(stuck)), name=other)
    assert (ended.done, (await office.find(stuck)).done) == (MESSAGES, 0)


async def test_projects_take_turns_however_many_operations_one_has(office: Office) -> None:
    @dataclass
    class Endless:
        projects: list[str]

        async def step(self, connection: HotConnection, operation: Operation) -> Step:
            self.projects.append(operation.project)
            return Step(done=1, progress={}, ended=False)

        def committed(self, operation: Operation, step: Step) -> None: ...

    for _ in range(5):
        await office.start()
    await office.start(project="projects/other")
    steps = Endless([])
    runner = office.runner(steps)
    for _ in range(20):
        await runner.run_once()
    assert steps.projects.count("projects/other") == 10


async def test_a_defect_is_tried_again_and_then_ends_it(office: Office) -> None:
    class Defect:
        tries = 0

        async def step(self, connection: HotConnection, operation: Operation) -> Step:
            self.tries += 1
            raise ZeroDivisionError

        def committed(self, operation: Operation, step: Step) -> None: ...

    defect = Defect()
    name = await office.start()
    ended = await office.run(office.runner(defect), name=name)
    assert (ended.state, ended.error_code, defect.tries) == ("FAILED", "INTERNAL", 5)


class _Later(DatabaseClock):
    """Ahead by so much."""

    by = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.by


async def test_one_that_has_ended_is_kept_for_some_days_and_then_deleted(office: Office) -> None:
    ended, running = await office.start(), await office.start()
    async with office.database.transaction() as connection:
        done = await store.end_operation(connection, name=ended, code="", message="", now=office.clock.now())
    assert done
    clock = _Later(office.database)
    await clock.synchronise()
    for days, left in ((2.9, [ended, running]), (3.1, [running])):
        clock.by = timedelta(days=days)
        clean_up = partial(store.delete_old_operations, days=3)
        await RetentionJanitor(make_core(office.database, clock), [clean_up]).run_once()
        async with office.database.transaction() as connection:
            found = await store.list_operations(connection, project="projects/p", page=Page(size=10, after=""))
        assert [each.name for each in found] == left


async def test_one_of_a_verb_that_only_newer_brokers_know_is_left_to_them_and_the_log_says_so_once(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """The others go on, though it has waited the longest."""
    newer = await office.start()
    await office.dead_letters.log.execute("UPDATE operations SET verb = 'transmute'")
    name = await office.start()
    runner = office.runner(office.kind())
    with caplog.at_level(logging.WARNING, "broker.state"):
        ended = await office.run(runner, name=name)
        assert [await runner.run_once() for _ in range(2)] == [runner_module.POLL_SECONDS] * 2
    assert (ended.state, ended.done) == ("SUCCEEDED", MESSAGES)
    left = await office.find(newer)
    assert (left.verb, left.state, left.done) == ("transmute", "RUNNING", 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"{newer} is left to a newer broker: this one does not know what the verb transmute is"
    ]
