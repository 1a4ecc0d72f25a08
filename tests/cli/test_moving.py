"""`broker database`, and the way from the embedded database to one's own (docs/moving-to-your-own-database.md)."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest

from broker.db.embedded.binaries import bin_directory
from broker.db.embedded.cluster import Cluster
from tests.cli.processes import complaint, run_broker, running_on
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message, text

StartBroker = Callable[..., BrokerProcess]
PROJECT = "projects/moving"


def _on(data: Path, *command: str) -> str:
    other = {"PGPORT": "1"}  # that of a PostgreSQL which has nothing to do with the broker
    done = run_broker("database", "--data-dir", str(data), *command, env=other)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _restore(dump: str, url: str) -> None:
    """As the page says: what PostgreSQL 15 and 16 do not know is left out; all of it, or nothing."""
    lines = [line for line in dump.splitlines(keepends=True) if not line.startswith("SET transaction_timeout")]
    psql = [bin_directory() / "psql", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", url]
    subprocess.run(psql, input="".join(lines), text=True, check=True, stdout=subprocess.DEVNULL)


async def _position(rest: Rest, name: str) -> Json:
    """But for the ages of messages, which go on."""
    position = await rest.ok("GET", f"{rest.subscription(name)}/snapshot")
    return {field: value for field, value in position.items() if not field.endswith("Age")}


async def _publish_and_take(rest: Rest) -> None:
    """Of five ordered messages the first is acked in each subscription, the second is out, the others wait."""
    await rest.create_topic()
    await rest.create_subscription("plain", ackDeadlineSeconds=600)
    await rest.create_subscription("ordered", ackDeadlineSeconds=600, enableMessageOrdering=True)
    for number in range(5):
        await rest.publish(message(f"order {number}", orderingKey="ada"))
    for name in ("plain", "ordered"):
        await rest.acknowledge(await rest.pull(name, 1), name)


async def _go_on(rest: Rest, out: dict[str, list[Json]], positions: Json) -> None:
    for name in ("plain", "ordered"):
        assert await _position(rest, name) == positions[name]
    assert [text(m) for m in await rest.pull("plain")] == ["order 2", "order 3", "order 4"]
    assert await rest.pull("ordered") == []  # the key is held by what was out before the move
    await rest.acknowledge(out["ordered"], "ordered")
    assert [text(m) for m in await rest.drain("ordered")] == ["order 2", "order 3", "order 4"]
    await rest.acknowledge(out["plain"], "plain")
    await rest.publish("after the move")
    assert [text(m) for m in await rest.drain("plain")] == ["after the move"]


@pytest.mark.slow
def test_messages_positions_order_and_acks_survive_the_move_to_a_database_of_ones_own(
    start_broker: StartBroker, data_dir: Path, empty_database_url: str
) -> None:
    """D3: and the acks of what was out before the move count after it."""
    out: dict[str, list[Json]] = {}
    positions: Json = {}

    async def before(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as client:
            rest = Rest(client, PROJECT)
            await _publish_and_take(rest)
            for name in ("plain", "ordered"):
                out[name] = await rest.pull(name, 1)
                positions[name] = await _position(rest, name)

    async def after(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as client:
            await _go_on(Rest(client, PROJECT), out, positions)

    broker = start_broker("--port", "0", "--data-dir", str(data_dir))
    asyncio.run(before(broker.url))
    assert _on(data_dir, "psql", "-Atc", "SELECT name FROM topics") == f"{PROJECT}/topics/topic\n"  # while it runs
    assert broker.stop() == 0

    _restore(_on(data_dir, "pg_dump", "--no-owner", "--no-privileges"), empty_database_url)
    assert run_broker("migrate", "--database-url", empty_database_url).returncode == 0
    moved = start_broker("--port", "0", "--database-url", empty_database_url)
    asyncio.run(after(moved.url))
    assert running_on(data_dir) == []


def test_a_dump_leaves_out_what_other_roles_have_made(start_broker: StartBroker, data_dir: Path) -> None:
    """A table in its own schema, and a large object: the role of the broker may read neither."""
    broker = start_broker("--port", "0", "--data-dir", str(data_dir))
    granted = run_broker("sql", "grant", "Shop app", "--data-dir", str(data_dir), "--project", "shop")
    assert granted.returncode == 0, granted.stderr
    with psycopg.connect(Cluster(data_dir).superuser_url, autocommit=True) as session:
        session.execute('SET ROLE "Shop app"')
        session.execute('CREATE TABLE "Shop app".carts (id bigint)')
        session.execute("SELECT lo_create(0)")
    done = run_broker("database", "--data-dir", str(data_dir), "pg_dump", "--no-owner", "--no-privileges")
    assert done.returncode == 0, done.stderr
    assert "CREATE TABLE broker.topics" in done.stdout
    assert "carts" not in done.stdout
    assert "the dump is without the schemas that belong to other roles: Shop app" in done.stderr
    assert broker.stop() == 0


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["psql"], 1, "there is no database in"),
        (["createdb", "x"], 2, "`broker database` runs psql, pg_dump, pg_restore, not 'createdb'"),
    ],
)
def test_what_cannot_be_run_on_the_embedded_database_is_refused(
    command: list[str], code: int, said: str, tmp_path: Path
) -> None:
    assert complaint("database", "--data-dir", str(tmp_path / "none"), *command, code=code).startswith(said)
    assert not (tmp_path / "none").exists()
