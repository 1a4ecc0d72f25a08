"""Keeps shards on their node while a transaction of a distributed schema has locked rows of them.

Citus may move a shard while a transaction has locked rows of it, because it waits only for writes.  The locks would
stay behind, the next claim would lock the rows in their new place, and two claims would deliver the same messages
(docs/decisions/0053-shards-on-nodes.md).
"""

import re
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

import psycopg

from broker.db.citus.engine import find_engine
from broker.db.driver.statements import Statement

# The lock that a write takes, on the first of the colocated tables: a move waits for the locks of all of them, and
# takes that one first.
_HOLD = (
    "SELECT pg_catalog.lock_shard_metadata(5, array_agg(pg_catalog.get_shard_id_for_distribution_column("
    "'shards'::regclass, shard_id) ORDER BY shard_id))"
)
HOLD_SHARDS = Statement(
    b"hold_shards", f"{_HOLD} FROM unnest($1::int8[]) AS s (shard_id)".encode(), (("shard_ids", "int8[]"),)
)
_HOLD_TEXT = f"{_HOLD} FROM unnest(%s::int8[]) AS s (shard_id)".encode()  # in a transaction that is not hot

_LOCKS = re.compile(rb"\bFOR (NO KEY )?UPDATE\b")
_WRITES = re.compile(rb"\b(INSERT INTO|DELETE FROM|UPDATE \w+( AS \w+)?\s+SET)\b")


async def hold_shards(connection: psycopg.AsyncConnection[Any], shard_ids: Iterable[int]) -> None:
    """Keeps shards on their nodes until the transaction ends, in which rows of them are to be locked."""
    if (await find_engine(connection)).is_distributed:
        await connection.execute(_HOLD_TEXT, [list(shard_ids)])


@cache
def only_locks(statement: Statement) -> bool:
    """Returns whether a statement locks rows and writes none.

    A move of their shard would not wait for such a statement.
    """
    return bool(_LOCKS.search(statement.text)) and not _WRITES.search(statement.text)


def shards_locked_by(statement: Statement, given: dict[str, Any]) -> Collection[int]:
    """Returns the shards whose rows a statement locks without writing, by the parameters that name shards."""
    if not only_locks(statement):
        return ()
    return {*given.get("shard_ids", ()), *([given["shard_id"]] if "shard_id" in given else ())}
