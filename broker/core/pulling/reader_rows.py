"""Rows of `readers`: the pulls and streams that each process last reported (F3)."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, or_, select

from broker.core.pulling.reader import SHOWN_FOR, Reader
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.text import storable
from broker.db.schema.tables import readers as table
from broker.model.ack_id import AttemptName

_COUNT_STILL_OUT = statements.hot("count_still_out")
_KEPT = timedelta(minutes=1)  # rows of processes that have ended


async def count_still_out(
    connection: HotConnection, *, attempts: Sequence[AttemptName], now: datetime
) -> list[int]:
    """Returns how many messages of each attempt are outstanding."""
    asked = {
        "shard_ids": [attempt.shard_id for attempt in attempts],
        "subscription_ids": [attempt.subscription_id for attempt in attempts],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "now": now,
    }
    [rows] = await connection.run((_COUNT_STILL_OUT, asked))
    counts = dict(rows)
    return [counts.get(number, 0) for number in range(1, len(attempts) + 1)]


async def replace_readers(
    connection: ResourceConnection, *, key: str, readers: Sequence[Reader], now: datetime
) -> None:
    """Replaces the rows of a process (`key`), and deletes those of processes that are gone."""
    await connection.execute(delete(table).where(or_(table.c.process_key == key, table.c.seen_at < now - _KEPT)))
    if readers:
        rows = [{**asdict(r), "client_id": storable(r.client_id), "process_key": key} for r in readers]
        await connection.execute(insert(table), rows)


async def remove_readers(connection: ResourceConnection, *, key: str) -> None:
    """Removes the readers of a process that ends."""
    await connection.execute(delete(table).where(table.c.process_key == key))


async def list_readers(connection: ResourceConnection, *, subscription_id: int, now: datetime) -> list[Reader]:
    """Returns the readers of one subscription, as running processes last wrote them."""
    query = select(table).where(table.c.subscription_id == subscription_id, table.c.seen_at > now - SHOWN_FOR)
    rows: Any = await connection.execute(query)
    return [Reader(**{name: row[name] for name in Reader.__dataclass_fields__}) for row in rows.mappings()]


async def count_readers(
    connection: ResourceConnection, *, subscription_ids: Sequence[int], now: datetime
) -> dict[int, int]:
    """Counts the readers of each subscription; those without any are left out."""
    query = (
        select(table.c.subscription_id, func.count())
        .where(table.c.subscription_id.in_(subscription_ids), table.c.seen_at > now - SHOWN_FOR)
        .group_by(table.c.subscription_id)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}
