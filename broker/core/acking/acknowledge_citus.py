"""Acknowledges whole attempts by one statement each, which Citus plans quickly (docs/decisions/0055)."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.model.sequences import from_bits, multirange_of, to_bits

_ACKNOWLEDGE_WHOLE = statements.hot("acknowledge_whole")

MOST_WHOLE = 2  # attempts; for more of them one statement is cheaper


async def acknowledge(connection: HotConnection, batch: Sequence[Bound]) -> list[list[Any]]:
    """Acknowledges whole attempts, and then by acknowledge.sql what was not in their first parts.

    Other acks, and those that are sent with other statements, are left to acknowledge.sql.
    """
    [(statement, given), *others] = batch
    if others or len(given["masks"]) > MOST_WHOLE or any("0" in mask for mask in given["masks"]):
        return await connection.run(*batch, as_written=True)
    found = list(chain(*await connection.run(*(_whole(given, number) for number in range(len(given["masks"]))))))
    rows = [(*row[:3], multirange_of((each.lower, each.upper) for each in row[3]), row[4]) for row in found]
    if len(rows) < len(given["masks"]) or any("0" in row[2] for row in rows):
        rest = _rest(given, rows)
        if rest["masks"]:
            [more] = await connection.run((statement, rest), as_written=True)
            rows += more
    return [rows]


def _whole(given: dict[str, Any], number: int) -> Bound:
    return _ACKNOWLEDGE_WHOLE, {
        "shard_id": given["shard_id"],
        "subscription_id": given["subscription_ids"][number],
        "attempt_id": given["attempt_ids"][number],
        "count": len(given["masks"][number]),
    }


def _rest(given: dict[str, Any], rows: Sequence[Any]) -> dict[str, Any]:
    """The parameters of acknowledge.sql for what these rows are without."""
    acked = {row[:2]: row[2] for row in rows}
    left = []
    for subscription_id, attempt_id, mask in zip(
        given["subscription_ids"], given["attempt_ids"], given["masks"], strict=True
    ):
        bits = acked.get((subscription_id, attempt_id), "")
        ordinals = {*from_bits(mask)} - {*from_bits(bits)}
        if ordinals:
            left.append((subscription_id, attempt_id, to_bits(ordinals, len(mask))))
    subscription_ids, attempt_ids, masks = map(list, zip(*left, strict=True)) if left else ([], [], [])
    return {**given, "subscription_ids": subscription_ids, "attempt_ids": attempt_ids, "masks": masks}
