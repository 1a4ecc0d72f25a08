"""Which shards a topic or subscription has, and which of them are for urgent messages (docs/decisions/0052)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Label, Text, cast, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.db.driver import statements
from broker.db.driver.named import fetch
from broker.db.schema.tables import known_shards, subscriptions, topics
from broker.model.api_json import from_json
from broker.model.priorities import Priorities
from broker.model.timestamps import whole_milliseconds

PRIORITIES = topics.c.settings["extensions"]["priorities"].label("priorities")  # of a topic, for `read_priorities`

_INSERT_SHARDS = statements.load("insert_shards")
_FIRST_URGENT = 1_000  # the ordinal of level 0: beyond those of all others


def shards_with_levels(condition: ColumnElement[bool]) -> Label[Any]:
    """A column of a query, "shards": those of which the condition is true, for `read_shards`."""
    found = select(func.jsonb_object_agg(cast(known_shards.c.shard_id, Text), known_shards.c.level)).where(
        condition
    )
    return found.scalar_subquery().label("shards")


def read_shards(found: Mapping[str, int | None] | None) -> tuple[tuple[int, ...], dict[int, int]]:
    """Their ids in order, and the level of each that has one."""
    each = {} if found is None else {int(shard_id): level for shard_id, level in found.items()}
    return tuple(sorted(each)), {shard_id: level for shard_id, level in each.items() if level is not None}


def read_priorities(found: Any) -> Priorities | None:
    """Returns the priorities of a topic from PRIORITIES."""
    return None if found is None else from_json(Priorities, found)


def of_subscription() -> ColumnElement[bool]:
    """Whether a known shard is one of a subscription: of its topic, or a private one."""
    return known_shards.c.topic_id.in_([subscriptions.c.topic_id, -subscriptions.c.subscription_id])


async def shards_of(connection: AsyncConnection, subscription_ids: Sequence[int]) -> Sequence[int]:
    """The ids of all shards of some subscriptions."""
    known = select(known_shards.c.shard_id).distinct().join_from(subscriptions, known_shards, of_subscription())
    return (await connection.scalars(known.where(subscriptions.c.subscription_id.in_(subscription_ids)))).all()


async def insert_shards(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Inserts shards of one topic, as made_shards returns them.  Returns their ids, in any order."""
    first = rows[0]
    made = {
        "topic_id": first["topic_id"],
        "last_publish_time": first["last_publish_time"],
        "open": first.get("open", True),
        "frozen_at": first.get("frozen_at"),
        "ordinals": [row["ordinal"] for row in rows],
        "levels": [row["level"] for row in rows],
    }
    columns = ("shard_id", "topic_id", "level")
    known = [dict(zip(columns, row, strict=True)) for row in await fetch(connection, _INSERT_SHARDS, made)]
    await connection.execute(insert(known_shards), known)
    return [row["shard_id"] for row in known]


def made_shards(
    topic_id: int, *, plain: Iterable[int], levels: Iterable[int], now: datetime, frozen: bool = False
) -> list[dict[str, Any]]:
    """Rows of new shards: plain ones by their ordinals, and one for each of the levels."""
    row = {
        "topic_id": topic_id,
        "last_publish_time": whole_milliseconds(now),
        "frozen_at": 0 if frozen else None,
    }
    return [
        *({**row, "ordinal": ordinal, "level": None} for ordinal in plain),
        *({**row, "ordinal": _FIRST_URGENT + level, "level": level} for level in levels),
    ]
