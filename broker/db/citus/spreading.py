"""Chooses the ids of new shards so that they are spread over the nodes.

Citus places a shard by the hash of its id, so the shards of a topic are spread evenly over the nodes if their ids
are chosen accordingly.  More ids are drawn than needed, and those that are not chosen stay unused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

_DRAWS = 8  # draws of as many ids as may be needed: a node with few parts of the table is seldom hit
_FOR_EACH, _LEAST = 4, 16  # ids that are drawn at once, for each shard and in all

# The nodes of the table's parts, and how many of these shards each part has.
_THERE = b"""
    SELECT p.groupid, count(t.shard_id)
    FROM pg_catalog.pg_dist_shard AS s
    JOIN pg_catalog.pg_dist_placement AS p USING (shardid)
    LEFT JOIN unnest(%s::int8[]) AS t (shard_id)
      ON get_shard_id_for_distribution_column('shards'::regclass, t.shard_id) = s.shardid
    WHERE s.logicalrelid = 'shards'::regclass
    GROUP BY p.groupid
"""
_DRAW = b"""
    WITH drawn AS MATERIALIZED (
        SELECT nextval(pg_get_serial_sequence('shards', 'shard_id')) AS shard_id FROM generate_series(1, %s)
    )
    SELECT d.shard_id, p.groupid
    FROM drawn AS d
    JOIN pg_catalog.pg_dist_placement AS p
      ON p.shardid = get_shard_id_for_distribution_column('shards'::regclass, d.shard_id)
    ORDER BY d.shard_id
"""


async def draw_shard_ids(
    connection: psycopg.AsyncConnection[Any], *, there: Sequence[int], count: int
) -> list[int]:
    """Ids for so many new shards of a topic, in order: with those that it has they lie as evenly as can be.

    They are greater than all that were given out before.  Raises psycopg.Error.
    """
    on_nodes = dict(await (await connection.execute(_THERE, [list(there)])).fetchall())
    drawn: list[tuple[int, int]] = []
    chosen: list[int] = []
    for _ in range(_DRAWS):
        drawn += await (await connection.execute(_DRAW, [max(_LEAST, _FOR_EACH * count)])).fetchall()
        chosen, is_even = choose_evenly(on_nodes, drawn, count)
        if is_even:
            break
    return sorted(chosen)


def choose_evenly(
    on_nodes: Mapping[int, int], drawn: Sequence[tuple[int, int]], count: int
) -> tuple[list[int], bool]:
    """Chooses so many shards, each from a node that has the fewest by then, as far as any were `drawn` there.

    `drawn` has pairs (id, node).  Returns the ids, and whether each node was one with the fewest.
    """
    having, left, chosen, is_even = dict(on_nodes), list(drawn), list[int](), True
    for _ in range(count):
        number = min(range(len(left)), key=lambda each: having[left[each][1]])  # the first of those
        shard_id, node = left.pop(number)
        is_even = is_even and having[node] == min(having.values())
        having[node] += 1
        chosen.append(shard_id)
    return chosen, is_even
