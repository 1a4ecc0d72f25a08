"""Runs read_kept.sql on distributed tables, which no statement joins with the catalog."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from broker.db.driver import statements
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection
from broker.features.quotas.retained import span_of

_READ_KEPT = statements.hot("read_kept")
_READ_KEEPERS = statements.hot("read_keepers")
_READ_KEPT_OF_SHARDS = statements.hot("read_kept_of_shards")


@of_one_statement
async def read_kept(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Reads the catalog first, as it names the shards.

    A subscription created meanwhile keeps what others keep already, and the next call reads it.  One deleted
    meanwhile still existed a moment ago.
    """
    [keepers] = await connection.run((_READ_KEEPERS, given))
    if not keepers:
        return []
    shard_ids = sorted({keeper.shard_id for keeper in keepers})
    [rows] = await connection.run((_READ_KEPT_OF_SHARDS, {"shard_ids": shard_ids}))
    of_shard: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        of_shard[row.shard_id].append(row)
    return [kept for keeper in keepers for kept in _kept(keeper, of_shard[keeper.shard_id])]


def _kept(keeper: Any, rows: Sequence[Any]) -> Iterator[Any]:
    """Yields the row of a shard by the rules of read_kept.sql; none if the shard was deleted meanwhile."""
    since = dict(zip(keeper.subscription_ids, keeper.retained_since, strict=True))
    detached = dict(zip(keeper.subscription_ids, keeper.detached, strict=True))
    times = [] if keeper.since is None else [keeper.since]
    spans: set[int] = set()
    for row in rows:
        if row.kind == "snapshot" and row.owner in keeper.snapshot_ids:
            times.append(row.time)
        elif row.owner not in since or (row.kind != "cursor" and detached[row.owner]):
            continue
        elif row.kind in ("cursor", "key"):
            times.append(max(row.time, since[row.owner]))
        elif row.kind == "attempt" and row.time > since[row.owner]:
            spans.add(row.span)
    first = span_of(min(times)) if times else None
    for row in rows:
        if row.kind == "head":
            yield _READ_KEPT.make_row((keeper.project, row.shard_id, row.head, first, [*spans]))
