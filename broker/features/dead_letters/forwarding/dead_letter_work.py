"""What there is to do for the forwarder of dead letters.

Where tables are distributed no statement joins subscriptions and what is delivered of them.  There three ask one
after the other: what they find is only where to look, for the forwarder locks and looks again.
"""

from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_FIND_DEAD_LETTER_WORK = statements.hot("find_dead_letter_work")
_FIND_EXHAUSTED = statements.hot("find_exhausted")
_READ_DEAD_LETTER_POLICIES = statements.hot("read_dead_letter_policies")
_FIND_WORN_OUT = statements.hot("find_worn_out")


async def find_dead_letter_work(connection: HotConnection, *, now: datetime) -> list[tuple[str, int]]:
    """Names of subscriptions, and their shards, that have something for the forwarder."""
    if connection.is_distributed:
        return await _find_on_nodes(connection, now)
    [rows] = await connection.run((_FIND_DEAD_LETTER_WORK, {"now": now}))
    return [(name, shard_id) for name, shard_id in rows]


async def _find_on_nodes(connection: HotConnection, now: datetime) -> list[tuple[str, int]]:
    [found] = await connection.run((_FIND_EXHAUSTED, {}))
    marked = {(row.subscription_id, row.shard_id) for row in found}
    ids = sorted({subscription_id for subscription_id, _ in marked})
    [policies] = await connection.run((_READ_DEAD_LETTER_POLICIES, {"subscription_ids": ids}))
    names = {row.subscription_id: row.name for row in policies}
    giving_up = {row.subscription_id: row.max_attempts for row in policies if row.max_attempts is not None}
    if giving_up:
        asked = {"subscription_ids": list(giving_up), "max_attempts": list(giving_up.values()), "now": now}
        [worn_out] = await connection.run((_FIND_WORN_OUT, asked))
        marked |= {(row.subscription_id, row.shard_id) for row in worn_out}
    return [(names[id_], shard_id) for id_, shard_id in sorted(marked) if id_ in names]
