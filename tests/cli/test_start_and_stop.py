"""`broker serve` on its embedded PostgreSQL: starting, stopping, and what is left."""

import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from broker.db.schema.schema_state import head_revision
from broker.net.listener import bound_socket, emulator_host, is_open_to_others
from broker.version import version
from tests.cli.processes import (
    Signalling,
    alive,
    complaint,
    ctrl_c,
    family,
    faults,
    is_ready,
    run_broker,
    terminate,
    terminate_all,
    waiting_pull,
)
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, has_in_command_line

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


async def test_a_fresh_data_directory_is_all_it_takes(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker("--data-dir", str(tmp_path / "made" / "for it"), "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, verify=NO_TLS) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        rest = Rest(client, "projects/first")
        await rest.create_topic()
        await rest.create_subscription()
        published = await rest.publish("hello")
        assert [m["message"]["messageId"] for m in await rest.drain()] == published
        findings = (await rest.ok("GET", "broker/findings"))["findings"]
    broker.stop()
    assert {each["check"]: each["severity"] for each in findings if each["severity"] != "OK"} == {}
    said = [line for line in broker.log if not line.startswith("20")]  # what is no line of the log
    directory = tmp_path / "made" / "for it"
    assert said == [
        f"Making a PostgreSQL in {directory} …",
        f"broker {version()}, 1 process, on PostgreSQL 18 in {directory} (embedded), "
        f"schema broker at {head_revision()}",
        f"Ready: {broker.url}",
        f"    Console: {broker.url}/console/",
        f"    export PUBSUB_EMULATOR_HOST={broker.url.removeprefix('http://')}",
        "Stopped.",
    ]
    assert not [line for line in broker.log if "uvicorn" in line]


def test_who_can_reach_the_broker_and_how_it_is_named_to_clients() -> None:
    for host, named, is_open in (
        ("127.0.0.1", "127.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", True),
    ):
        with bound_socket(host, 0) as listener:
            port = listener.getsockname()[1]
            assert (emulator_host(listener), is_open_to_others(listener)) == (f"{named}:{port}", is_open)


@pytest.mark.parametrize("signalling", [ctrl_c, terminate, terminate_all])
async def test_it_stops_at_once_and_leaves_nothing_although_a_pull_waits(
    start_broker: StartBroker, data_dir: Path, signalling: Signalling
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    processes = family(broker)
    assert len(processes) > 4
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/stopping")
        await rest.create_topic()
        await rest.create_subscription()
        pull = await waiting_pull(rest)
        signalling(broker)
        answer = await pull
    if signalling is terminate_all and answer.status_code == 503:
        pass  # PostgreSQL may have ended the connections first
    else:
        assert (answer.status_code, answer.json()) == (200, {})
    assert broker.process.wait(8) == 0
    broker.stop()
    assert faults(broker) == []
    await eventually(lambda: not alive(processes))
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_a_second_ctrl_c_does_not_make_a_mess(start_broker: StartBroker, data_dir: Path) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    processes = family(broker)
    ctrl_c(broker)
    while broker.process.poll() is None:
        ctrl_c(broker)
        await asyncio.sleep(0.02)  # an impatient hand
    assert broker.stop() == 0
    assert faults(broker) == []
    await eventually(lambda: not alive(processes))


def _initialising(directory: Path, _: BrokerProcess) -> bool:
    return (directory / "postgres.new").exists()


def _starting_postgres(directory: Path, _: BrokerProcess) -> bool:
    return (directory / "postgres" / "postmaster.pid").exists()


def _says_what_it_runs_on(broker: BrokerProcess) -> bool:
    return any(line.startswith("broker ") for line in broker.log)


def _making_the_schema(_: Path, broker: BrokerProcess) -> bool:
    makers = [child for child in broker.children() if has_in_command_line(child, "spawn_main")]
    return bool(makers) and not _says_what_it_runs_on(broker)


def _starting_workers(_: Path, broker: BrokerProcess) -> bool:
    return _says_what_it_runs_on(broker) and bool(broker.workers())


@pytest.mark.parametrize(
    ("moment", "signalling"),
    [
        (_initialising, ctrl_c),
        (_making_the_schema, terminate),
        (_starting_postgres, terminate),
        (_starting_workers, ctrl_c),
    ],
)
async def test_it_can_be_stopped_while_it_starts_and_starts_afterwards(
    start_broker: StartBroker,
    tmp_path: Path,
    moment: Callable[[Path, BrokerProcess], bool],
    signalling: Signalling,
) -> None:
    broker = BrokerProcess("--data-dir", str(tmp_path), "--port", "0")
    await eventually(lambda: moment(tmp_path, broker))
    processes = family(broker)
    signalling(broker)
    assert broker.process.wait(20) == 0
    broker.stop()
    assert faults(broker) == []
    await eventually(lambda: not alive(processes))
    start_broker("--data-dir", str(tmp_path), "--port", "0")


def _working_in(directory: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(directory)]


async def test_nothing_goes_on_making_a_database_for_a_broker_that_was_stopped(tmp_path: Path) -> None:
    broker = BrokerProcess("--data-dir", str(tmp_path), "--port", "0")
    try:
        makers = await eventually(lambda: _working_in(tmp_path / "postgres.new"))  # children of initdb
        with contextlib.suppress(ProcessLookupError):
            assert os.getpgid(makers[0].pid) != broker.process.pid  # they are ended as a group
        terminate(broker)
        assert broker.process.wait(20) == 0
        await eventually(lambda: not _working_in(tmp_path / "postgres.new"))
    finally:
        broker.stop()


async def test_a_second_start_on_the_same_data_says_so_and_leaves_the_first_alone(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    port = httpx.URL(broker.url).port
    expected = f"A broker is running on {data_dir} already."
    assert complaint("serve", "--data-dir", str(data_dir), "--port", "0") == expected
    # The port is taken as well then, but that is not what is wrong.
    assert complaint("serve", "--data-dir", str(data_dir), "--port", str(port)) == expected
    assert await asyncio.to_thread(is_ready, broker)
    # What a broker is not in the way of:
    granted = run_broker("sql", "grant", "shop_app", "--data-dir", str(data_dir), "--project", "shop")
    assert (granted.returncode, "shop_app may call pubsub.publish" in granted.stdout) == (0, True), granted.stderr
    assert "1 broker process serves from it." in run_broker("backup", "check", "--data-dir", str(data_dir)).stdout
    assert "Stop them and try again" in complaint("backup", "restored", "--data-dir", str(data_dir))


@pytest.mark.parametrize("name", ["long" * 30, 'ünïcode, comma\'s "quote" 100%'])
def test_any_path_can_be_the_data_directory(start_broker: StartBroker, tmp_path: Path, name: str) -> None:
    broker = start_broker("--data-dir", str(tmp_path / name), "--port", "0")
    assert httpx.get(f"{broker.url}/readyz").status_code == 200


def test_a_start_that_is_refused_leaves_no_process() -> None:
    mark = uuid.uuid4().hex
    refused = subprocess.run(
        [sys.executable, "-m", "broker", "serve", "--workers", "none"],
        env={**os.environ, "MARK_OF_THIS_TEST": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert refused.returncode == 2
    templates = [process for process in psutil.process_iter() if has_in_command_line(process, "forkserver")]
    assert not [process.pid for process in templates if _has_in_environment(process, mark)]


def _has_in_environment(process: psutil.Process, value: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return value in process.environ().values()
    return False


def test_workers_share_the_port(start_broker: StartBroker, database_url: str) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0", "--workers", "2")
    workers = broker.workers()
    assert len(workers) == 2
    workers[0].kill()
    psutil.wait_procs(workers[:1])
    for _ in range(10):
        assert httpx.get(f"{broker.url}/readyz").status_code == 200
