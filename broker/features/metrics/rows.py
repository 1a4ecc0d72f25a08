"""Statements that read values of all topics and subscriptions for a scrape (F1)."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Text, any_, func, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from broker.core.log.retained import estimate_retained
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.hot_connection import HotConnection
from broker.db.schema.tables import operations, outbox, scheduled_messages, subscriptions, topics

_LIST_OLDEST_TOPICS = statements.hot("list_oldest_topics")

MOST_SCHEDULED = 100_000
MAX_OUTBOX_COUNTED = 10_000
MOST_BEYOND = 100_000

_PROJECTS = text("""
    SELECT p.name FROM unnest(CAST(:names AS text[])) AS p (name)
    WHERE EXISTS (
        SELECT FROM topics AS t
        WHERE t.name > p.name || '/topics/' COLLATE "C" AND t.name < p.name || '/topics0' COLLATE "C"
    ) OR EXISTS (
        SELECT FROM subscriptions AS s
        WHERE s.name > p.name || '/subscriptions/' COLLATE "C" AND s.name < p.name || '/subscriptions0' COLLATE "C"
    )
""")


async def read_retained(connection: HotConnection, *, max_topics: int) -> Mapping[str, int]:
    """Returns the approximate size of the log of each of the `max_topics` oldest topics in bytes, by the topic's
    name.
    """
    [shards] = await connection.run((_LIST_OLDEST_TOPICS, {"max_topics": max_topics}))
    names = {row.shard_id: row.name for row in shards}
    found = dict.fromkeys(names.values(), 0)
    for shard_id, retained in (await estimate_retained(connection, shard_ids=names)).items():
        found[names[shard_id]] += retained.size
    return found


async def list_frozen(connection: ResourceConnection, *, limit: int) -> list[str]:
    """Returns the names of up to `limit` frozen topics."""
    frozen = select(topics.c.name).where(topics.c.frozen.is_not(None)).order_by(topics.c.topic_id).limit(limit)
    return list(await connection.scalars(frozen))


async def count_operations(connection: ResourceConnection) -> Mapping[str, tuple[int, datetime]]:
    """Returns by project the number of operations under way, and the earliest of the times of their last steps."""
    columns = operations.c.project, func.count(), func.min(operations.c.updated_at)
    counted = select(*columns).where(operations.c.ended_at.is_(None)).group_by(operations.c.project)
    return {project: (count, updated_at) for project, count, updated_at in await connection.execute(counted)}


async def count_outbox(connection: ResourceConnection) -> tuple[int, datetime | None]:
    """Returns the number of committed rows in the outbox, up to MAX_OUTBOX_COUNTED, and when the oldest was
    written.
    """
    first = select(outbox.c.written_at).order_by(outbox.c.n).limit(MAX_OUTBOX_COUNTED).subquery()
    row = (await connection.execute(select(func.count(), func.min(first.c.written_at)).select_from(first))).one()
    return row[0], row[1]


async def count_scheduled(connection: ResourceConnection) -> int:
    """Returns the number of scheduled messages, up to MOST_SCHEDULED."""
    waiting = scheduled_messages.c
    some = select(waiting.due_at).order_by(waiting.shard_id, waiting.due_at).limit(MOST_SCHEDULED).subquery()
    return int(await connection.scalar(select(func.count()).select_from(some)) or 0)


async def find_names(connection: ResourceConnection, *, kind: str, names: Sequence[str]) -> set[str]:
    """Returns those of the full names of a kind ("topic", "subscription", "project") that have series.

    All existing resources have series except detached subscriptions, and projects with neither topics nor
    subscriptions.
    """
    names = [
        name for name in names if "\0" not in name
    ]  # callers name what cannot exist, and PostgreSQL refuses it
    if kind == "project":
        return set(await connection.scalars(_PROJECTS, {"names": names}))
    table = topics if kind == "topic" else subscriptions
    found = select(table.c.name).where(table.c.name == any_(literal(names, ARRAY(Text))))
    if kind == "subscription":
        found = found.where(~subscriptions.c.detached)
    return set(await connection.scalars(found))


async def count_beyond(connection: ResourceConnection, *, most: int) -> int:
    """Returns the number of subscriptions beyond the first `most`, up to MOST_BEYOND."""
    beyond = select(subscriptions.c.subscription_id).order_by(subscriptions.c.subscription_id)
    counted = select(func.count()).select_from(beyond.offset(most).limit(MOST_BEYOND).subquery())
    return (await connection.execute(counted)).scalar_one()
