"""Tests the guarantees that a broker relies on with distributed tables, before it serves them.

Statements that are sent together must be rolled back together (docs/decisions/0040), through a connection like that
of the hot statements; and nodes must keep what they have confirmed.
"""

import asyncio
import random
from typing import Any

import psycopg

from broker.db.driver.database import Database
from broker.db.driver.statements import Statement
from broker.model.errors import Aborted, Unavailable

_Connection = psycopg.Connection[Any]

# A row that belongs to no shard and no subscription, because these are numbered from 1.
_KEY = (("shard_id", "int8"), ("subscription_id", "int8"))
_INSERT = Statement(
    b"probe_insert",
    b"INSERT INTO cursors (shard_id, subscription_id, next_publish_time, next_seq, due_floor)"
    b" VALUES ($1, $2, 'epoch', 1, 'epoch')",
    _KEY,
)
_FIND = Statement(b"probe_find", b"SELECT FROM cursors WHERE shard_id = $1 AND subscription_id = $2", _KEY)
_DELETE = Statement(b"probe_delete", b"DELETE FROM cursors WHERE shard_id = $1 AND subscription_id = $2", _KEY)
_SHARDS = range(-16, 0)  # one is tried after the other, until one is on a node that answers

_SETTINGS = """
    SELECT nodename || ':' || nodeport, result
    FROM run_command_on_workers(
        $$SELECT current_setting('synchronous_commit') || ' ' || current_setting('max_prepared_transactions')$$)
    WHERE success
"""


def why_not_relied_on(connection: _Connection, database_url: str, schema: str) -> str:
    """Why a broker cannot rely on the nodes ("": it can).  Raises psycopg.Error, Unavailable."""
    for node, found in connection.execute(_SETTINGS).fetchall():
        synchronous_commit, prepared = found.split()
        if synchronous_commit == "off":
            return f"the node {node} of the Citus cluster has synchronous_commit = off: it loses what was answered"
        if prepared == "0":
            return f"the node {node} of the Citus cluster has max_prepared_transactions = 0: no commit spans nodes"
    if asyncio.run(is_undone_as_one(database_url, schema)):
        return ""
    return "what is sent to the Citus cluster as one transaction is not undone as one: messages would be lost"


async def is_undone_as_one(database_url: str, schema: str) -> bool:
    database = Database(database_url, schema=schema, pool_size=1)
    key = {"subscription_id": -random.randrange(1, 2**62)}  # noqa: S311
    try:
        for shard_id in _SHARDS:
            try:
                return await _undoes(database, key | {"shard_id": shard_id})
            except Unavailable:
                if shard_id == _SHARDS[-1]:
                    raise
        raise AssertionError
    finally:
        await database.close()


async def _undoes(database: Database, key: dict[str, int]) -> bool:
    try:
        async with database.hot() as connection:
            await connection.run((_INSERT, key), (_INSERT, key))
    except Aborted:  # the second conflicts with the first
        pass
    async with database.hot() as connection:
        [rows] = await connection.run((_FIND, key))
        if rows:
            await connection.run((_DELETE, key))
        return not rows
