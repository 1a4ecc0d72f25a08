"""`broker serve` after something was killed: processes come back, and so does every message."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from broker.db.embedded.cluster import Cluster
from broker.db.embedded.system_user import running_as, unprivileged_user
from tests.cli.processes import alive, family, faults, is_ready, kill_all, running_on, waiting_pull
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.fixtures.data_directory import copied

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


@asynccontextmanager
async def talking_to(broker: BrokerProcess) -> AsyncIterator[Rest]:
    # Only a hang takes so long.
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        yield Rest(client, "projects/recovery")


async def _publish_some(broker: BrokerProcess) -> list[str]:
    async with talking_to(broker) as rest:
        await rest.create_topic()
        await rest.create_subscription()
        return [*await rest.publish(*(f"m{n}" for n in range(100))), *await rest.publish("last")]


async def _drained_ids(broker: BrokerProcess) -> list[str]:
    async with talking_to(broker) as rest:
        return [m["message"]["messageId"] for m in await rest.drain()]


@pytest.mark.parametrize("postgres_too", [False, True], ids=["postgres survives", "postgres dies too"])
async def test_a_start_after_kill_9_recovers_with_everything_there(
    start_broker: StartBroker, data_dir: Path, postgres_too: bool
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    published = await _publish_some(broker)
    if postgres_too:
        kill_all(family(broker))
        broker.stop()
    else:
        broker.kill()
    again = start_broker("--data-dir", str(data_dir), "--port", "0")
    assert await _drained_ids(again) == published


async def test_workers_end_with_a_parent_that_was_killed_and_free_the_port(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    published = await _publish_some(broker)
    workers = broker.workers()
    broker.process.kill()
    broker.process.wait()
    again = start_broker("--data-dir", str(data_dir), "--port", str(httpx.URL(broker.url).port))
    assert alive(workers) == []
    assert await _drained_ids(again) == published


async def test_a_postmaster_that_was_killed_alone_leaves_no_obstacle(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    published = await _publish_some(broker)
    postmaster = broker.postmaster()
    stuck = next(p for p in postmaster.children() if "checkpointer" in " ".join(p.cmdline()))
    stuck.suspend()  # it cannot notice that its postmaster is gone, and holds on to the shared memory
    kill_all([*broker.workers(), psutil.Process(broker.process.pid), postmaster])
    broker.stop()
    waking = asyncio.get_running_loop().call_later(1, stuck.resume)
    again = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), "--port", "0")
    waking.cancel()
    assert await _drained_ids(again) == published


@pytest.fixture
def other_postmaster(made_data: Path, tmp_path: Path) -> Iterator[psutil.Process]:
    """A PostgreSQL that is none of the broker's business."""
    cluster = Cluster(copied(made_data, tmp_path / "other"))
    cluster.open()
    pid = int((tmp_path / "other" / "postgres" / "postmaster.pid").read_text().splitlines()[0])
    yield psutil.Process(pid)
    cluster.close()


async def test_a_stale_process_number_harms_nobody(
    start_broker: StartBroker, data_dir: Path, other_postmaster: psutil.Process
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    published = await _publish_some(broker)
    kill_all(family(broker))
    broker.stop()
    # After a reboot, or in a new container, the number in postmaster.pid belongs to somebody else.
    pid_file = data_dir / "postgres" / "postmaster.pid"
    _, *rest = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(other_postmaster.pid), *rest]) + "\n")
    again = start_broker("--data-dir", str(data_dir), "--port", "0")
    assert await _drained_ids(again) == published
    assert alive([other_postmaster])


async def test_a_killed_worker_is_started_again(start_broker: StartBroker, database_url: str) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    published = await _publish_some(broker)
    (worker,) = broker.workers()
    worker.kill()
    assert await _drained_ids(broker) == published  # the connection waits until there is a worker again
    assert worker not in broker.workers()


async def test_workers_are_replaced_with_the_process_that_they_were_forked_from(
    start_broker: StartBroker, database_url: str
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0", "--workers", "2")
    published = await _publish_some(broker)
    [template], workers = broker.templates(), broker.workers()
    assert template.num_threads() == 1  # a fork takes over no other thread
    template.kill()
    await eventually(lambda: len(broker.workers()) == 2 and not alive([template, *workers]))
    await eventually(lambda: is_ready(broker))
    assert await _drained_ids(broker) == published
    assert broker.stop() == 0


def _serving_postmasters(broker: BrokerProcess) -> list[psutil.Process]:
    return [child for child in alive(broker.children()) if child.name() == "postgres"]


async def _call_until_it_works(rest: Rest) -> set[int]:
    """Publish until that works; returns the statuses of what failed before."""
    statuses: set[int] = set()
    while True:
        answer = await rest.call("POST", f"{rest.topic()}:publish", {"messages": [{"data": "YQ=="}]})
        if answer.status_code == 200:
            return statuses
        statuses.add(answer.status_code)
        assert answer.json()["error"]["status"] == "UNAVAILABLE"
        await asyncio.sleep(0.02)


async def test_a_killed_postmaster_is_started_again_and_calls_fail_cleanly_meanwhile(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    published = await _publish_some(broker)
    async with talking_to(broker) as rest:
        await rest.create_subscription("idle")
        for _ in range(2):  # what was started again is watched as well
            pull = await waiting_pull(rest, "idle")
            killed = broker.postmaster()
            killed.kill()
            await eventually(lambda killed=killed: not alive([killed]))
            assert await _call_until_it_works(rest) <= {503}
            answer = await pull
            assert answer.status_code in (200, 503)
            await eventually(lambda: _serving_postmasters(broker))
            if received := answer.json().get("receivedMessages"):  # it waited all through
                await rest.acknowledge(received, "idle")
            else:
                await eventually(lambda: rest.drain("idle"))
        assert (await rest.client.get("/readyz")).status_code == 200
    assert set(published) <= set(await _drained_ids(broker))
    broker.stop()
    assert faults(broker) == []
    await eventually(lambda: not running_on(data_dir))


async def test_a_worker_and_postgres_killed_together_both_come_back(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    published = await _publish_some(broker)
    kill_all([broker.postmaster(), *broker.workers()])
    async with talking_to(broker) as rest:
        await _call_until_it_works(rest)
    assert set(published) <= set(await _drained_ids(broker))


async def test_postgres_that_cannot_start_again_is_tried_again(start_broker: StartBroker, data_dir: Path) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    published = await _publish_some(broker)
    configuration = data_dir / "postgres" / "postgresql.auto.conf"
    before = configuration.read_text()
    configuration.write_text("no_such_setting = 1\n")
    broker.postmaster().kill()
    await eventually(lambda: any("the embedded PostgreSQL does not start" in line for line in broker.log))
    configuration.write_text(before)
    async with talking_to(broker) as rest:
        await _call_until_it_works(rest)
    assert set(published) <= set(await _drained_ids(broker))


@pytest.fixture
def own_server(data_dir: Path) -> Iterator[Cluster]:
    """A PostgreSQL of the operator's own, migrated, that can be stopped."""
    cluster = Cluster(data_dir)
    cluster.open()
    yield cluster
    cluster.close()


async def test_readyz_says_when_the_database_is_away(start_broker: StartBroker, own_server: Cluster) -> None:
    broker = start_broker("--database-url", own_server.url, "--port", "0")
    published = await _publish_some(broker)
    await asyncio.to_thread(own_server.close)
    async with httpx.AsyncClient(base_url=broker.url, timeout=30, verify=NO_TLS) as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert (await client.get("/healthz")).status_code == 200
        await asyncio.to_thread(own_server.open)

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)
    assert await _drained_ids(broker) == published
    assert faults(broker) == []


def test_leftovers_do_not_include_others_who_stand_in_the_directory(data_dir: Path) -> None:
    cluster = Cluster(data_dir)
    subscription_gauges = running_as(unprivileged_user()) | {"cwd": data_dir / "postgres"}
    bystander = subprocess.Popen(["sleep", "60"], **subscription_gauges)
    try:
        cluster.open()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        with contextlib.suppress(ProcessLookupError):
            cluster.close()
