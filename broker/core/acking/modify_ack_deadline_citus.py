"""Runs modify_ack_deadline.sql on distributed tables, where the statement that changes a row cannot split it.

The statement without its last part returns the parts to split off.  A second statement inserts them in the same
transaction, which keeps the locks of the first.
"""

from collections.abc import Sequence
from typing import Any

from broker.db.driver import statements
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT

_MODIFY_WHOLE_ROWS = statements.hot_without(
    "modify_ack_deadline",
    "split",
    """
    SELECT subscription_id, attempt_id, moving::text AS moving, is_whole,
           new_part + row_number() OVER (
               PARTITION BY subscription_id, attempt_id, new_part, is_whole ORDER BY part
           ) AS part,
           new_status, new_failure, new_number, nullif(new_delivery_at, 'infinity') AS new_delivery_at,
           delivered_at,
           seqs::text AS seqs, (acked & ~acked)::text AS acked, first_publish_time, last_publish_time, redriven
    FROM moved
    """,
)
_INSERT_SPLIT_PARTS = statements.hot("insert_split_parts")


@of_one_statement
async def modify_ack_deadline(connection: HotConnection, given: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Changes deadlines in the transaction that is open, or else in one of its own."""
    is_own = not connection.in_transaction
    if is_own:
        await connection.run((BEGIN, {}))
    [rows] = await connection.run((_MODIFY_WHOLE_ROWS, given))
    split = [row for row in rows if not row[3]]
    if split:
        await connection.run((_INSERT_SPLIT_PARTS, {"shard_id": given["shard_id"], **_columns(split)}))
    if is_own:
        await connection.run((COMMIT, {}))
    return [row[:3] for row in rows]


def _columns(split: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    names = (
        *("subscription_ids", "attempt_ids", "open", "_", "parts", "statuses", "failures", "attempt_numbers"),
        *("next_delivery_ats", "delivered_ats", "seqs", "acked", "first_publish_times", "last_publish_times"),
        "redriven",
    )
    columns = {name: list(column) for name, column in zip(names, zip(*split, strict=True), strict=True)}
    return {**columns, "redriven": [bool(each) for each in columns["redriven"]]}
