"""The embedded PostgreSQL is kept running, whatever is in the way of its next start."""

import asyncio
import contextlib
import os
import signal
import threading
from pathlib import Path
from shutil import which

import psutil
import psycopg
import pytest

from broker.db.embedded import cluster as clusters
from broker.db.embedded.cluster import Cluster, is_up_or_recovers
from broker.db.embedded.leftovers import StillRunning, stop_leftovers
from tests.fixtures.broker import eventually


async def test_backends_that_do_not_end_delay_the_next_start_but_do_not_prevent_it(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those do that wait in the kernel, for a disk: no signal ends them."""
    cluster = Cluster(data_dir)
    await asyncio.to_thread(cluster.open)
    refusals = 0

    def stubborn(data: Path, sockets: Path) -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            raise StillRunning(f"PostgreSQL processes [1] run on {data} and do not end")
        stop_leftovers(data, sockets)

    monkeypatch.setattr(clusters, "stop_leftovers", stubborn)
    monkeypatch.setattr(clusters, "_RETRY_SECONDS", 0.1)
    keeper = asyncio.create_task(cluster.keep_running())
    try:
        assert cluster._process is not None
        cluster._process.kill()

        def answers() -> bool:
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(cluster.url):
                return refusals > 1
            return False

        await eventually(lambda: asyncio.to_thread(answers))
        assert not keeper.done()
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await asyncio.to_thread(cluster.close)


def test_a_program_that_a_signal_meets_at_its_start_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an initdb goes on making what the next start begins to make anew."""
    sleep = which("sleep")
    assert sleep is not None

    def programs(_: object) -> Path:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return Path(sleep).parent

    monkeypatch.setattr(clusters, "bin_directory", programs)
    before = psutil.Process().children()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            Cluster(tmp_path)._run("sleep", "60")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert psutil.Process().children() == before


async def test_a_postmaster_that_neither_serves_nor_recovers_is_ended_and_started_again(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL 18 was seen so after a full disk; here a healthy one is taken for such."""
    reported: list[str] = []
    cluster = Cluster(data_dir)
    await asyncio.to_thread(cluster.open)
    assert cluster._process is not None
    first = cluster._process.pid
    assert is_up_or_recovers(first)
    assert not is_up_or_recovers(os.getpid()), "it has no such process"
    monkeypatch.setattr(clusters, "is_up_or_recovers", lambda pid: pid != first)
    monkeypatch.setattr(clusters, "_STUCK_SECONDS", 0.1)
    monkeypatch.setattr(clusters, "_INSPECT_SECONDS", 0.1)
    keeper = asyncio.create_task(cluster.keep_running(reported.append))
    try:

        def answers() -> bool:
            assert cluster._process is not None
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(cluster.url):
                return cluster._process.pid != first
            return False

        await eventually(lambda: asyncio.to_thread(answers))
        await eventually(lambda: reported and reported[-1] == "")
        assert "exit code 0" in reported[0] or "signal" in reported[0]
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await asyncio.to_thread(cluster.close)
