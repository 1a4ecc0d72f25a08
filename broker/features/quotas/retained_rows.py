"""What the logs of projects keep, in bytes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard
from broker.db.driver.hot_connection import HotConnection
from broker.features.quotas.retained import Tally, span_of

_READ_KEPT = statements.hot("read_kept")
_READ_KEEPERS = statements.hot("read_keepers")
_READ_KEPT_ON_NODES = statements.hot("read_kept_on_nodes")
_SUM_BATCHES = statements.hot("sum_batches")
_SUM_SCHEDULED = statements.hot("sum_scheduled")
_READ_PROJECTS = statements.hot("read_projects")


class Kept(NamedTuple):
    """What a shard must keep: of spans from `since` on (None: nothing), and of `spans` before it."""

    project: str
    shard_id: int
    head: int
    since: int | None
    spans: Sequence[int]


async def read_projects(connection: HotConnection) -> list[str]:
    """The projects that may have a log."""
    [rows] = await connection.run((_READ_PROJECTS, {}))
    return [project for (project,) in rows]


async def read_kept(connection: HotConnection, *, projects: Sequence[str], now: datetime) -> list[Kept]:
    """Of all shards of topics of these projects."""
    asked = {"projects": list(projects), "now": now}
    if connection.is_distributed:
        return await _read_on_nodes(connection, asked)
    [rows] = await connection.run((_READ_KEPT, asked))
    return [Kept(*row) for row in rows]


async def _read_on_nodes(connection: HotConnection, asked: dict[str, Any]) -> list[Kept]:
    """The catalog first, for the shards' sake.  Who comes into being meanwhile keeps what others keep already, and
    is among those of the next look; who goes meanwhile was one a moment ago.
    """
    [keepers] = await connection.run((_READ_KEEPERS, asked))
    if not keepers:
        return []
    shard_ids = sorted({keeper.shard_id for keeper in keepers})
    [rows] = await connection.run((_READ_KEPT_ON_NODES, {"shard_ids": shard_ids}))
    of_shard: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        of_shard[row.shard_id].append(row)
    return [kept for keeper in keepers for kept in _kept(keeper, of_shard[keeper.shard_id])]


def _kept(keeper: Any, rows: Sequence[Any]) -> Iterator[Kept]:
    """One, or none if the shard has gone meanwhile; the rules are those of read_kept.sql."""
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
    yield from (Kept(keeper.project, row.shard_id, row.head, first, [*spans]) for row in rows if row.kind == "head")


async def sum_batches(connection: HotConnection, tallies: dict[int, Tally], *, limit: int) -> set[int]:
    """Add what was published after the tallies (by shard): at most `limit` batches of each.

    Returns the shards that may have more.
    """
    parameters = {
        "shard_ids": list(tallies),
        "publish_times": [tally.publish_time for tally in tallies.values()],
        "seqs": [tally.seq for tally in tallies.values()],
        "limit": limit,
    }
    rows = chain(*await connection.run(*by_shard(connection, _SUM_BATCHES, parameters)))
    read = dict.fromkeys(tallies, 0)
    for row in rows:
        tallies[row.shard_id].add(row.span, row.size, publish_time=row.publish_time, seq=row.seq)
        read[row.shard_id] += row.batches
    return {shard_id for shard_id, batches in read.items() if batches >= limit}


async def sum_scheduled(
    connection: HotConnection, shards: dict[int, int], *, limit: int
) -> tuple[dict[int, int], dict[int, int]]:
    """The bytes that wait in shards for their time, by shard, of messages after a number in each (`shards`).

    At most `limit` messages of each.  Returns also where to go on in those that may have more.
    """
    parameters = {"shard_ids": list(shards), "id_seqs": list(shards.values()), "limit": limit}
    rows = list(chain(*await connection.run(*by_shard(connection, _SUM_SCHEDULED, parameters))))
    more = {row.shard_id: row.id_seq for row in rows if row.messages >= limit}
    return {row.shard_id: row.size for row in rows}, more
