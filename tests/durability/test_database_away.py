"""The database stands still, or goes and comes back, in the middle of a load (A1)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from broker.db.driver.hot_connection import UNANSWERED_SECONDS
from broker.db.embedded.cluster import Cluster
from tests.cli.processes import faults
from tests.durability.workload import Workload
from tests.fixtures.broker import PATIENCE_SECONDS, BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]

SEED = 77


@contextmanager
def _standing_still(postmaster: psutil.Process) -> Iterator[None]:
    """SIGSTOP of the postmaster and all its backends, those that are being started too."""
    postmaster.suspend()
    processes = [postmaster, *postmaster.children()]
    for process in processes[1:]:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(processes):
            process.resume()


async def test_a_database_that_stands_still_for_a_moment_fails_no_call(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    workload = Workload([broker.url], seed=SEED)
    await workload.create()
    async with workload.running(publishers=8):
        await workload.until(answered=300, acked=300)
        with _standing_still(broker.postmaster()):
            await asyncio.sleep(1)
        await workload.until(answered=300, acked=300)
    assert not workload.history.failures
    await workload.drain()
    workload.history.check_complete()


@pytest.mark.slow
async def test_nothing_is_lost_when_the_database_stands_still_for_long_and_the_broker_recovers(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    workload = Workload([broker.url], seed=SEED)
    await workload.create()
    history = workload.history
    async with workload.running(publishers=8):
        await workload.until(answered=300, acked=300)
        workload.fault()
        with _standing_still(broker.postmaster()):
            await asyncio.sleep(UNANSWERED_SECONDS + 3)
            failed = history.failures["UNAVAILABLE"]
            await asyncio.sleep(1)
            # Calls are refused at once now, rather than each after a time-out.
            assert history.failures["UNAVAILABLE"] > failed + 20
        await workload.until(answered=300, acked=300)
    assert set(history.failures) <= {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
    await workload.drain()
    history.check_complete()
    assert faults(broker) == []


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(240)])])
async def test_nothing_is_lost_when_the_database_refuses_connections_for_a_while(
    start_broker: StartBroker, data_dir: Path, seconds: int
) -> None:
    cluster = Cluster(data_dir)
    cluster.open()
    try:
        broker = start_broker("--database-url", cluster.url, "--port", "0")
        workload = Workload([broker.url], seed=SEED)
        await workload.create()
        async with workload.running(publishers=8):
            await workload.until(answered=300, acked=300)
            workload.fault()
            await asyncio.to_thread(cluster.close)
            failed = workload.history.failures["UNAVAILABLE"]
            await asyncio.sleep(seconds)
            assert workload.history.failures["UNAVAILABLE"] > failed + 25 * seconds
            await asyncio.to_thread(cluster.open)
            async with asyncio.timeout(PATIENCE_SECONDS):  # whatever the time it was away
                await workload.until(answered=300, acked=300)
        assert set(workload.history.failures) == {"UNAVAILABLE"}
        await workload.drain()
        workload.history.check_complete()
        assert faults(broker) == []
        [worker] = broker.workers()
        said = [line for line in broker.log if f" worker-0[{worker.pid}] " in line]
        away, back = (line for line in said if " broker.state: " in line or " WARNING " in line)
        assert f" WARNING worker-0[{worker.pid}] broker.state: the database is away: connection" in away
        assert f" INFO worker-0[{worker.pid}] broker.state: the database is back, after " in back
    finally:
        broker.stop()
        cluster.close()
