"""What the tests of the command line know about processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.fixtures.broker import PATIENCE_SECONDS, BrokerProcess, Rest

Signalling = Callable[[BrokerProcess], None]


def run_broker(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A `broker …` command that is expected to end by itself; `cwd` may have the code of another version."""
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "DATABASE_URL"} | dict(env or {}),
    )


def complaint(*arguments: str, env: Mapping[str, str] | None = None, code: int = 1) -> str:
    """What `broker …` says when it refuses: one line, and this exit code."""
    # The tests' own limit for small disks would be ignored, with a warning, where a database URL is given.
    done = run_broker(*arguments, env={"BROKER_DISK_FREE_MIN": ""} | dict(env or {}))
    assert done.returncode == code, done
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("broker: ")
    return lines[0].removeprefix("broker: ")


def family(broker: BrokerProcess) -> list[psutil.Process]:
    """The parent and all processes below it: workers, PostgreSQL and its backends."""
    parent = psutil.Process(broker.process.pid)
    return [parent, *parent.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, FileNotFoundError):  # it ended between the two
        return False


def kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        if process.is_running():
            process.kill()


def running_on(directory: Path) -> list[psutil.Process]:
    """PostgreSQL's processes that work in a data directory."""
    wanted = ("postgres", str(directory / "postgres"))
    every = psutil.process_iter(["name", "cwd"])
    return alive([process for process in every if (process.info["name"], process.info["cwd"]) == wanted])


def ctrl_c(broker: BrokerProcess) -> None:
    """What a terminal does: SIGINT to everything in the foreground."""
    os.killpg(broker.process.pid, signal.SIGINT)


def terminate(broker: BrokerProcess) -> None:
    broker.process.terminate()


def terminate_all(broker: BrokerProcess) -> None:
    """What systemd does: SIGTERM to all processes of the service, PostgreSQL's too."""
    for process in family(broker):
        process.terminate()


def faults(broker: BrokerProcess) -> list[str]:
    """Its log, if there is anything in it that an operator would worry about."""
    return broker.log if any("Traceback" in line or " ERROR " in line for line in broker.log) else []


def is_ready(broker: BrokerProcess) -> bool:
    return httpx.get(f"{broker.url}/readyz", timeout=PATIENCE_SECONDS).status_code == 200


async def waiting_pull(rest: Rest, name: str = "sub") -> asyncio.Task[httpx.Response]:
    """A pull that waits in the broker by the time this returns."""
    sent = asyncio.Event()

    async def trace(event: str, _: dict[str, Any]) -> None:
        if event == "http11.send_request_body.complete":
            sent.set()

    path = f"{rest.subscription(name)}:pull"
    pull = asyncio.create_task(rest.call("POST", path, {"maxMessages": 10}, extensions={"trace": trace}))
    await sent.wait()
    assert await rest.pull(name) == []  # stands behind it in the queue, so it has been claimed for as well
    return pull
