"""Reads how many bytes the logs of projects retain."""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard
from broker.db.driver.hot_connection import HotConnection
from broker.features.quotas.retained import Tally

_READ_KEPT = statements.hot("read_kept")
_SUM_BATCHES = statements.hot("sum_batches")
_SUM_SCHEDULED = statements.hot("sum_scheduled")
_READ_PROJECTS = statements.hot("read_projects")


class Kept(NamedTuple):
    """The spans that a shard must keep: from `since` on (None: none), and the `spans` before it."""

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
    """Reads what all shards of these projects' topics must keep."""
    asked = {"projects": list(projects), "now": now}
    [rows] = await connection.run((_READ_KEPT, asked))
    return [Kept(*row) for row in rows]


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
