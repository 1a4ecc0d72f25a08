"""Copies go on where they were, whatever is killed: every message once, keys in order (G2)."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from broker.core.catalog.topic_logs import replace_logs
from broker.core.context.core import Core
from broker.core.log.appending import append_to_shards
from broker.core.log.copied_messages import read_ends
from broker.core.log.copying import Meant, meant_json
from broker.core.log.messages import encode_messages
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.db.driver.database import Database
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.import_export.copy_operation import CopyKind
from broker.features.operations import rows as store
from broker.features.operations import runner as runner_module
from broker.features.operations.operation import Operation
from broker.features.operations.runner import Kind, OperationRunner
from broker.features.operations.targets import Targets
from broker.features.quotas.quota import NO_QUOTAS, ProjectQuotas
from broker.model.errors import Aborted, Unavailable
from broker.model.message import NewMessage
from broker.model.operation_verb import Verb
from broker.model.timestamps import END_OF_TIME, EVER
from tests.features.operations.test_operations import Careless, Dying
from tests.fixtures.core import make_core, make_preparation
from tests.fixtures.log import Log, make_log, texts

MESSAGES = 120
SEED = 20261123


@dataclass
class Office:
    """What a runner needs; `log` is copied to `other`."""

    log: Log
    other: Log
    clock: DatabaseClock
    tasks: Tasks

    @property
    def database(self) -> Database:
        return self.log.database

    def core(self, quotas: ProjectQuotas = NO_QUOTAS) -> Core:
        return make_core(self.database, self.clock, self.tasks, quotas=quotas)

    def kind(self, core: Core | None = None) -> CopyKind:
        core = core or self.core()
        return CopyKind(core, Targets(core, make_preparation(core)))

    def runner(self, kind: Kind, cls: type[OperationRunner] = OperationRunner) -> OperationRunner:
        return cls(self.core(), {Verb.COPY: kind})

    async def start(self) -> str:
        now = self.clock.now()
        source, target = self.log.topic, self.other.topic
        async with self.database.hot() as hot:
            ends = await read_ends(hot, shard_ids=source.shard_ids, since=EVER, until=END_OF_TIME)
        meant = Meant(
            source_id=source.topic_id,
            target=target.name,
            target_id=target.topic_id,
            ends={shard_id: end.head for shard_id, end in ends.items()},
            since=EVER,
            until=END_OF_TIME,
        )
        operation = Operation(
            name=f"projects/p/operations/{now.timestamp():.6f}",
            project="projects/p",
            verb=Verb.COPY,
            target=source.name,
            request={"meant": meant_json(meant)},
            total=sum(end.count for end in ends.values()),
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

    async def copied(self) -> list[str]:
        found: list[str] = []
        while deliveries := await self.other.pull(now=self.clock.now()):
            found += texts(deliveries)
        return found


@pytest.fixture
async def office(log: Log, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    """Messages of three keys, in batches of many; seven a step, which ends within a batch."""
    monkeypatch.setattr("broker.features.import_export.copy_operation.step_size", lambda _: 7)
    monkeypatch.setattr(runner_module, "_AGAIN", runner_module._AGAIN * 0)
    other = await make_log(log.database, log.start, "other")
    for begin in range(0, MESSAGES, 12):
        for key in range(3):
            numbers = range(begin + key, begin + 12, 3)
            await log.publish(*map(str, numbers), key="abc"[key])
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    yield Office(log, other, clock, tasks)
    await tasks.close()


@pytest.mark.slow
@pytest.mark.ci
async def test_each_message_is_copied_once_however_often_it_dies(office: Office) -> None:
    dice = random.Random(SEED)
    dying = [Dying(office.kind(), dice) for _ in range(2)]
    name = await office.start()
    ended = await office.run(*(office.runner(kind) for kind in dying), name=name)
    assert sum(kind.deaths for kind in dying) > 10
    assert (ended.state, ended.done, ended.total) == ("SUCCEEDED", MESSAGES, MESSAGES)
    assert ended.counts == {"copied": MESSAGES}
    copied = await office.copied()
    assert Counter(copied) == Counter(map(str, range(MESSAGES)))
    for key in range(3):
        of_key = [int(text) for text in copied if int(text) % 3 == key]
        assert of_key == sorted(of_key)


async def test_one_that_writes_down_its_progress_apart_is_found_out(office: Office) -> None:
    """The same look at what was copied sees that steps were done which nobody has written down."""
    name = await office.start()
    await office.run(office.runner(office.kind(), Careless), name=name)
    assert max(Counter(await office.copied()).values()) > 1


async def test_what_is_published_after_the_call_is_not_meant(office: Office) -> None:
    name = await office.start()
    await office.log.publish("late")
    ended = await office.run(office.runner(office.kind()), name=name)
    assert ended.done == MESSAGES
    assert "late" not in await office.copied()


async def test_what_is_purged_meanwhile_is_not_copied(office: Office) -> None:
    """The topic has new logs, and its old ones are there for a while yet."""
    name = await office.start()
    await office.runner(office.kind()).run_once()
    async with office.database.transaction() as connection:
        await replace_logs(connection, topic=office.log.topic, now=office.clock.now())
    ended = await office.run(office.runner(office.kind()), name=name)
    assert (ended.state, ended.done, len(await office.copied())) == ("SUCCEEDED", 7, 7)


async def test_it_waits_while_a_quota_is_used_up(office: Office) -> None:
    core = office.core(ProjectQuotas({"publishMessages": 5}, {}))
    await core.admission.load()
    kind = office.kind(core)
    name = await office.start()
    operation = await office.find(name)
    async with office.database.hot() as connection:
        await connection.run((BEGIN, {}))
        step = await kind.step(connection, operation)
        assert step.done == 7
        with pytest.raises(Aborted, match="publishMessages"):
            await kind.step(connection, operation)
        await connection.close()


async def test_shards_that_are_frozen_or_closed_get_nothing(office: Office) -> None:
    """What a process knows of a topic may be old."""
    batches = {office.other.shard_id: [encode_messages([NewMessage(data=b"x")])]}
    kind, name = office.kind(), await office.start()
    await kind._targets.topic(office.other.topic.name, office.other.topic.topic_id)
    for change in ("frozen_at = head", "frozen_at = NULL, open = false"):
        await office.log.execute(f"UPDATE shards SET {change} WHERE shard_id = {office.other.shard_id}")
        async with office.database.hot() as connection:
            await connection.run((BEGIN, {}))
            with pytest.raises(Aborted):
                await kind.step(connection, await office.find(name))
            await connection.close()
    await office.log.execute(f"UPDATE shards SET open = true WHERE shard_id = {office.other.shard_id}")
    async with office.database.hot() as connection:
        await connection.run((BEGIN, {}))
        await append_to_shards(connection, batches=batches, now=office.clock.now())
        await connection.run((COMMIT, {}))
    assert await office.copied() == ["x"]
