"""Runs find_dead_letter_work.sql on distributed tables, which no statement joins with the catalog.

Three statements in a row find only where to look: the forwarder locks, and decides by what it reads then.
"""

from typing import Any

from broker.db.driver import statements
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection

_FIND_EXHAUSTED = statements.hot("find_exhausted")
_READ_DEAD_LETTER_POLICIES = statements.hot("read_dead_letter_policies")
_FIND_WORN_OUT = statements.hot("find_worn_out")


@of_one_statement
async def find_dead_letter_work(connection: HotConnection, given: dict[str, Any]) -> list[tuple[str, int]]:
    [found] = await connection.run((_FIND_EXHAUSTED, {}))
    marked = {(row.subscription_id, row.shard_id) for row in found}
    ids = sorted({subscription_id for subscription_id, _ in marked})
    [policies] = await connection.run((_READ_DEAD_LETTER_POLICIES, {"subscription_ids": ids}))
    names = {row.subscription_id: row.name for row in policies}
    giving_up = {row.subscription_id: row.max_attempts for row in policies if row.max_attempts is not None}
    if giving_up:
        limits = {"subscription_ids": list(giving_up), "max_attempts": list(giving_up.values())}
        [worn_out] = await connection.run((_FIND_WORN_OUT, {**limits, "now": given["now"]}))
        marked |= {(row.subscription_id, row.shard_id) for row in worn_out}
    return [(names[id_], shard_id) for id_, shard_id in sorted(marked) if id_ in names]
