"""Which shards a topic or subscription has, and which of them are for urgent messages (docs/decisions/0052)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Label, Row, Text, cast, func, select

from broker.domain.priority import Priorities
from broker.domain.timestamps import whole_milliseconds
from broker.store.schema.tables import shards, topics

PRIORITIES = (topics.c.priorities, topics.c.priority_age, topics.c.priority_weights)

_FIRST_URGENT = 1_000  # the ordinal of level 0: beyond those of all others


def shards_with_levels(condition: ColumnElement[bool]) -> Label[Any]:
    """A column of a query, "shards": those of which the condition is true, for `read_shards`."""
    found = select(func.jsonb_object_agg(cast(shards.c.shard_id, Text), shards.c.level)).where(condition)
    return found.scalar_subquery().label("shards")


def read_shards(found: Mapping[str, int | None] | None) -> tuple[tuple[int, ...], dict[int, int]]:
    """Their ids in order, and the level of each that has one."""
    each = {} if found is None else {int(shard_id): level for shard_id, level in found.items()}
    return tuple(sorted(each)), {shard_id: level for shard_id, level in each.items() if level is not None}


def read_priorities(row: Row[Any]) -> Priorities | None:
    """Of a topic, in a row that has PRIORITIES."""
    if row.priorities is None:
        return None
    return Priorities(row.priorities, row.priority_age, tuple(row.priority_weights or ()))


def priority_columns(priorities: Priorities | None) -> dict[str, Any]:
    return {
        "priorities": priorities and priorities.levels,
        "priority_age": priorities and priorities.age,
        "priority_weights": list(priorities.weights) if priorities is not None and priorities.weights else None,
    }


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
