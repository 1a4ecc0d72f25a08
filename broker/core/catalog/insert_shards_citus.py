"""Inserts new shards of a topic so that they are spread evenly over the nodes."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from broker.db.citus.spreading import draw_shard_ids
from broker.db.driver.database import ResourceConnection, driver_of

_READ_SHARDS = b"SELECT shard_id FROM known_shards WHERE topic_id = %s AND (level IS NOT NULL) = %s"
_INSERT = b"""
    INSERT INTO shards (shard_id, topic_id, ordinal, last_publish_time, open, frozen_at, level)
    OVERRIDING SYSTEM VALUE
    VALUES (%(shard_id)s, %(topic_id)s, %(ordinal)s, %(last_publish_time)s, %(open)s, %(frozen_at)s, %(level)s)
"""


async def insert_shards(connection: ResourceConnection, given: Mapping[str, Any]) -> list[Any]:
    """Spreads the shards of urgent messages and the others each by themselves."""
    driver = await driver_of(connection)
    rows: list[dict[str, Any]] = []
    numbered = zip(given["ordinals"], given["levels"], strict=True)
    for is_urgent, run in groupby(numbered, key=lambda each: each[1] is not None):
        alike = list(run)
        there = await (await driver.execute(_READ_SHARDS, [given["topic_id"], is_urgent])).fetchall()
        drawn = await draw_shard_ids(driver, there=[shard_id for (shard_id,) in there], count=len(alike))
        rows += (
            {**given, "shard_id": shard_id, "ordinal": ordinal, "level": level}
            for (ordinal, level), shard_id in zip(alike, drawn, strict=True)
        )
    async with driver.cursor() as cursor:
        await cursor.executemany(_INSERT, rows)
    return [(row["shard_id"], row["topic_id"], row["level"]) for row in rows]
