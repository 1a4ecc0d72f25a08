"""Which node what is about a shard goes to, where several are named (docs/decisions/0059)."""

from datetime import datetime
from typing import Any

import psycopg
import pytest

from broker.core.log.known_heads import KnownHeads
from broker.core.log.messages import append_messages, encode_messages
from broker.db.driver import shard_nodes
from broker.db.driver.database import Database
from broker.db.driver.statements import Statement
from broker.model.message import NewMessage
from tests.citus.test_moves import move_shard
from tests.fixtures.broker import eventually
from tests.fixtures.citus import NEEDS_CITUS, Nodes
from tests.fixtures.database import begin, in_schema
from tests.fixtures.log import Log, make_log

pytestmark = NEEDS_CITUS

_PORT = Statement(b"port", b"SELECT current_setting('port')::int8")
_HELD = Statement(b"held", b"SELECT sum(total_bytes)::int8 FROM pg_backend_memory_contexts")
_TIMES = 12  # more than by chance
_FLUSHES, _MOST_BYTES = 200, 1_000_000


async def _asked(database: Database, shard_id: int, statement: Statement) -> Any:
    async with database.at_any_node(shard_id) as connection:
        [[(value,)]] = await connection.run((statement, {}))
        return value


def _port_of(url: str, shard_id: int) -> int:
    """Of the node that has a shard."""
    with psycopg.connect(in_schema(url)) as connection:
        row = connection.execute(
            "SELECT nodeport FROM citus_shards WHERE shardid = get_shard_id_for_distribution_column('shards', %s)",
            [shard_id],
        ).fetchone()
    assert row is not None
    return int(row[0])


async def _until_there(database: Database, log: Log, port: int) -> None:
    async def there() -> bool:
        return {await _asked(database, log.shard_id, _PORT) for _ in range(_TIMES)} == {port}

    await eventually(there)


async def test_what_is_about_a_shard_goes_to_the_node_that_has_it(
    through: tuple[Database, datetime], distributed_url: str, citus_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_nodes, "KNOWN_SECONDS", 0.0)
    database, now = through
    logs = [await make_log(database, now, f"log-{number}") for number in range(6)]
    ports = {log.shard_id: _port_of(distributed_url, log.shard_id) for log in logs}
    assert len({*ports.values()}) == 2
    for log in logs:
        await _until_there(database, log, ports[log.shard_id])
    [moved, *_] = logs
    await moved.publish("before")
    move_shard(citus_nodes, distributed_url, moved.shard_id, "block_writes")
    await moved.publish("behind")  # by way of the node that has it no more, or of the other
    assert await moved.pull_texts() == ["before", "behind"]
    port = _port_of(distributed_url, moved.shard_id)
    assert port != ports[moved.shard_id]
    await _until_there(database, moved, port)


async def test_a_node_that_is_away_is_passed_by(distributed_url: str, citus_nodes: Nodes) -> None:
    """Its shards cannot be reached, but all others by way of the node that is there."""
    first, second = citus_nodes.workers
    nowhere = Nodes.hot_url(distributed_url).replace(str(second.port), "5499")
    database = Database(in_schema(distributed_url), hot_url=nowhere, pool_size=2)
    try:
        now = await begin(database)
        for number in range(4):
            log = await make_log(database, now, f"passed-{number}")
            for _ in range(3):
                assert await _asked(database, log.shard_id, _PORT) == first.port
            await log.publish("a")
            assert await log.pull_texts() == ["a"]
        assert not database.nodes_are_away
    finally:
        await database.close()


async def test_a_session_does_not_grow_with_what_it_runs(through: tuple[Database, datetime]) -> None:
    """Citus keeps a plan for each run of a prepared statement about a shard of the node itself, for ever."""
    database, now = through
    log, heads = await make_log(database, now, "grows"), KnownHeads()
    requests = [encode_messages([NewMessage(data=b"a")])]

    async def publish() -> None:
        async with database.at_any_node(log.shard_id) as connection:
            assert await append_messages(connection, shard_id=log.shard_id, requests=requests, now=now, heads=heads)

    for _ in range(10):
        await publish()
    before = await _asked(database, log.shard_id, _HELD)
    for _ in range(_FLUSHES):
        await publish()
    assert await _asked(database, log.shard_id, _HELD) - before < _MOST_BYTES
