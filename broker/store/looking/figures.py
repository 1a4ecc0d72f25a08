"""What a scrape reads of all topics and subscriptions at once (F1)."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import func, select

from broker.store.driver import statements
from broker.store.driver.database import ResourceConnection
from broker.store.driver.hot_connection import HotConnection
from broker.store.schema.operation_tables import operations
from broker.store.schema.staged_tables import staged
from broker.store.schema.tables import subscriptions, topics

_READ_RETAINED = statements.hot("read_retained")

MOST_STAGED = 10_000


async def read_retained(connection: HotConnection, *, max_topics: int) -> Mapping[str, int]:
    """Bytes that the log of each topic takes, about, by the topic's name; of the `max_topics` oldest topics."""
    [rows] = await connection.run((_READ_RETAINED, {"max_topics": max_topics}))
    return {row.name: row.retained_bytes for row in rows}


async def list_frozen(connection: ResourceConnection, *, limit: int) -> list[str]:
    """The names of topics that are frozen."""
    frozen = select(topics.c.name).where(topics.c.frozen.is_not(None)).order_by(topics.c.topic_id).limit(limit)
    return list(await connection.scalars(frozen))


async def count_operations(connection: ResourceConnection) -> Mapping[str, tuple[int, datetime]]:
    """How many operations of each project are under way, and when the one that waits longest had its last step."""
    columns = operations.c.project, func.count(), func.min(operations.c.updated_at)
    counted = select(*columns).where(operations.c.ended_at.is_(None)).group_by(operations.c.project)
    return {project: (count, updated_at) for project, count, updated_at in await connection.execute(counted)}


async def count_staged(connection: ResourceConnection) -> tuple[int, datetime | None]:
    """How much is staged and committed, up to MOST_STAGED, and since when the first of it waits."""
    first = select(staged.c.staged_at).order_by(staged.c.n).limit(MOST_STAGED).subquery()
    row = (await connection.execute(select(func.count(), func.min(first.c.staged_at)).select_from(first))).one()
    return row[0], row[1]


async def list_names(connection: ResourceConnection) -> tuple[set[str], set[str]]:
    """The names of all topics, and of all subscriptions."""
    of_topics, of_subscriptions = [
        set(await connection.scalars(select(table.c.name))) for table in (topics, subscriptions)
    ]
    return of_topics, of_subscriptions
