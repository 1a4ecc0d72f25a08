"""Recovery to a point in time, by a base backup and archived WAL, of a real server: no id comes twice, and what is
from the past is delivered as it should be (L3).
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.db.driver.database import Database
from broker.db.schema import migrations
from broker.db.schema.after_restore import go_on_after_restore
from broker.db.schema.backup_state import inspect_backup
from tests.fixtures.database import begin
from tests.fixtures.dead_letters import DeadLetters, make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, Log, make_log, texts
from tests.fixtures.standby import Server

pytestmark = [pytest.mark.slow, pytest.mark.ci]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="broker-test-"))  # pytest's are closed to others
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def _archiving(directory: Path) -> Server:
    """A server whose WAL is archived."""
    server = Server(directory / "a")
    (archive := directory / "archive").mkdir()
    archive.chmod(0o777)
    server.run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
    with (server.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"archive_mode = on\narchive_command = 'cp %p {archive}/%f'\n")
    server.start()
    return server


def _back_up(server: Server, directory: Path) -> Server:
    copy = Server(directory / "b")
    at = ("-h", str(server.directory), "-U", "postgres")
    copy.run("pg_basebackup", *at, "-X", "none", "-c", "fast", "--no-sync")
    return copy


def _recover(copy: Server, directory: Path, until: str) -> None:
    """Start the copy as it was at a time."""
    with (copy.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(
            f"archive_mode = off\nrestore_command = 'cp {directory}/archive/%f %p'\n"
            f"recovery_target_time = '{until}'\nrecovery_target_action = 'promote'\n"
        )
    (copy.data / "recovery.signal").touch()
    copy.start()
    copy.until(b"SELECT 1 WHERE NOT pg_is_in_recovery()")


def _url(server: Server) -> str:
    return f"postgresql://postgres@/postgres?host={server.directory}"


@asynccontextmanager
async def _opened(server: Server) -> AsyncIterator[Database]:
    database = Database(_url(server), pool_size=2)
    try:
        yield database
    finally:
        await database.close()


async def _ids(log: Log) -> dict[str, tuple[int, int]]:
    rows = await log.rows("SELECT shard_id, seq, convert_from(data, 'UTF8') FROM messages")
    return {text: (shard_id, seq) for shard_id, seq, text in rows}


async def _history(database: Database) -> tuple[Log, DeadLetters]:
    """A key of whose messages the first is out, and a dead letter of another topic."""
    now = await begin(database)
    log, dead_letters = (
        await make_log(database, now),
        await make_dead_letters(await make_log(database, now, "failing")),
    )
    await log.publish("a", "b", "c", key="k")
    assert texts(await log.pull(1, ordered=True, max_run=1)) == ["a"]
    await dead_letters.give_up("letter")
    return log, dead_letters


async def _goes_on(
    database: Database, before: Log, dead_letters: DeadLetters, lost: dict[str, tuple[int, int]]
) -> None:
    log, failing, dead = (replace(one, database=database) for one in (before, dead_letters.log, dead_letters.dead))
    state = inspect_backup(database.url, schema="broker")
    assert (state.flaws, state.out) == ({}, 1)
    gap = go_on_after_restore(database.url, schema="broker")
    kept = await _ids(log)
    assert {"a", "b", "c", "after the backup", "letter"} <= {*kept}
    assert not {"lost", "lost too", "lost letter"} & {*kept}
    await log.publish("new", key="k")
    new = (await _ids(log))["new"]
    assert new not in lost.values()
    assert new[1] == kept["after the backup"][1] + gap.sequences + 1  # the gap is there to be seen
    assert inspect_backup(database.url, schema="broker").flaws == {}
    assert await _delivered(log) == ["a", "b", "c", "after the backup", "new"]
    assert len(await DeadLetters(failing, dead).redrive()) == 1
    assert await failing.pull_texts(max_attempts=1) == ["letter"]


async def _delivered(log: Log) -> list[str]:
    """The first was out: it holds its key until its deadline, and comes again."""
    assert await log.pull(1, ordered=True) == []
    got: list[str] = []
    now = log.start + 2 * ACK_DEADLINE
    while runs := await log.pull(1, now=now, ordered=True, max_run=1):
        got += texts(runs)
        async with log.session() as session:
            acks = {log.name(run): {0} for run in runs}
            await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=set(), now=now)
    return got


async def test_a_recovery_to_a_point_in_time_gives_no_id_twice(directory: Path) -> None:
    server = _archiving(directory)
    copy: Server | None = None
    try:
        migrations.upgrade(_url(server))
        async with _opened(server) as database:
            log, dead_letters = await _history(database)
            copy = _back_up(server, directory)
            await log.publish("after the backup", key="k")
            [[until]] = server.ask(b"SELECT clock_timestamp()::text")
            await log.publish("lost", "lost too", key="k")
            await dead_letters.give_up("lost letter")
            lost = await _ids(log)
            server.ask(b"SELECT pg_switch_wal()")
        server.run("pg_ctl", "-w", "-m", "fast", "stop")  # archives the rest
        _recover(copy, directory, until)
        async with _opened(copy) as database:
            await _goes_on(database, log, dead_letters, lost)
    finally:
        for each in filter(None, (server, copy)):
            if (each.data / "postmaster.pid").exists():
                each.kill()
