"""Reads the lag of all subscriptions of a project (F3), many at once."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from broker.core.lag.lag import MAX_ATTEMPTS, MAX_BATCHES, MAX_NEWEST, MAX_SCANNED, KeyHolder, ShardLag
from broker.core.log.message_ids import id_seqs_at
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.message_id import message_id
from broker.model.subscription import Subscription

_READ_ACTIVITY = statements.hot("read_activity")
_READ_LAG = statements.hot("read_lag")


async def read_lag(
    connection: HotConnection, *, subscriptions: Sequence[Subscription], now: datetime
) -> list[ShardLag]:
    """Returns the lag of each subscription in each of its shards, without locks.

    A subscription that is detached or deleted has none.
    """
    ids = {"subscription_ids": [s.subscription_id for s in subscriptions]}
    asked = {
        "retained_since": [now - s.retention for s in subscriptions],
        "filter_paths": [s.filter_path for s in subscriptions],
        "body_paths": [s.body_path for s in subscriptions],
        "ordered": [s.enable_message_ordering for s in subscriptions],
        "now": now,
        "max_attempts": MAX_ATTEMPTS,
        "max_batches": MAX_BATCHES,
        "max_scanned": MAX_SCANNED,
        "max_newest": MAX_NEWEST,
    }
    stands, activity = await connection.run((_READ_LAG, ids | asked), (_READ_ACTIVITY, ids))
    last_active_at = {row.subscription_id: row.last_active_at for row in activity}
    rows = [row for row in stands if row.subscription_id in last_active_at]
    holders = {(row.shard_id, json.loads(row.holder)["seq"]) for row in rows if row.holder is not None}
    names = await id_seqs_at(connection, holders)
    return [_shard_lag(row, last_active_at[row.subscription_id], names) for row in rows]


def _shard_lag(row: Any, last_active_at: datetime, names: Mapping[tuple[int, int], int]) -> ShardLag:
    return ShardLag(
        last_active_at=last_active_at,
        **{name: value for name, value in row._asdict().items() if name not in ("holder", "shard_id")},
        holder=_holder(row.shard_id, row.holder, names),
    )


def _holder(shard_id: int, text: str | None, names: Mapping[tuple[int, int], int]) -> KeyHolder | None:
    if text is None:
        return None
    row = json.loads(text)
    return KeyHolder(
        ordering_key=row["ordering_key"],
        message_id=message_id(shard_id, names[shard_id, row["seq"]]),
        attempt_number=row["attempt_number"],
        is_out=row["status"] == "delivering",
        delivered_at=datetime.fromtimestamp(float(row["delivered_at"]), UTC),
    )
