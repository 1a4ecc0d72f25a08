"""A8, B2: push under faults.  Nothing is lost, nothing is doubled without a reason, keys keep their order."""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from broker.db.embedded.cluster import Cluster
from tests.durability.push_faults import Faults
from tests.durability.push_workload import HEALTHY, MIXED, Plan, PushWorkload
from tests.fixtures.broker import BrokerProcess
from tests.fixtures.push_sink import PushSink

StartBroker = Callable[..., BrokerProcess]

SEED = 20260714
CHANGES = ("switch_an_endpoint", "switch_to_pull_and_back", "pause_and_resume")
PROCESSES = ("kill_a_worker", "stop_a_worker", "kill_the_broker", "restart", "stop_a_worker_for_long")
DATABASE = ("crash_postgres", "cut_connections")


class Scenario:
    """A broker of its own under load, with what befalls it, one after the other."""

    def __init__(
        self,
        start_broker: StartBroker,
        sink: PushSink,
        directory: Path,
        *,
        seed: int,
        plans: Sequence[Plan] = MIXED,
    ) -> None:
        self.workload = PushWorkload("", sink, plans, seed=seed)
        self._dice = random.Random(seed)

        def start() -> BrokerProcess:
            return start_broker("--data-dir", str(directory), "--port", "0", "--workers", "2")

        self.faults = Faults(self.workload, start, Cluster(directory).url, seed=seed)

    async def run(self, *befalls: str) -> None:
        """Raises AssertionError with what should not have happened."""
        workload = self.workload
        async with workload.connected():
            await self.faults.start()
            await workload.create()
            async with workload.running():
                await workload.until_published(self._dice.randint(60, 150))
                for name in befalls:
                    await self.faults.do(name)
                    await workload.until_published(self._dice.randint(20, 80))
            await workload.heal()
            await workload.drain()
        for history in workload.topics.values():
            history.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_pushes_survive_faults_side_by_side(
    start_broker: StartBroker, push_sink: PushSink, tmp_path: Path
) -> None:
    def scenario(name: str, plans: Sequence[Plan] = MIXED) -> Scenario:
        return Scenario(start_broker, push_sink, tmp_path / name, seed=SEED, plans=plans)

    outcomes = await asyncio.gather(
        scenario("healthy", HEALTHY).run(*CHANGES * 2),
        scenario("processes").run("kill_a_worker", "stop_a_worker", "kill_the_broker", "restart"),
        scenario("database").run("crash_postgres", "cut_connections", *CHANGES),
        return_exceptions=True,
    )
    faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if faults:
        raise ExceptionGroup("scenarios", faults)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(1, 9))
async def test_they_do_for_longer(
    start_broker: StartBroker, push_sink: PushSink, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    kinds = [PROCESSES, DATABASE, CHANGES, PROCESSES + DATABASE + CHANGES][seed % 4]
    befalls = [dice.choice(kinds) for _ in range(12)]
    await Scenario(start_broker, push_sink, tmp_path, seed=seed).run(*befalls)
