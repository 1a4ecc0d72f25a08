"""Rows of `push_attempts` and `breaker_changes`."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, or_, select

from broker.db.driver import statements
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.text import storable
from broker.db.schema.tables import breaker_changes, push_attempts
from broker.model.push_history import (
    ATTEMPTS_KEPT,
    MAX_BREAKER_CHANGES,
    BreakerChange,
    PushAttemptPage,
    PushAttempts,
)
from broker.model.push_state import MAX_EXCERPT

_RECORD_PUSH_ATTEMPTS = statements.load("record_push_attempts")
_RECORD_BREAKER_CHANGES = statements.load("record_breaker_changes")
_TRIM_BREAKER_CHANGES = statements.load("trim_breaker_changes")
_DELETE_OLD = "DELETE FROM push_attempts WHERE minute < %(before)s"


async def record_push_attempts(connection: ResourceConnection, *, attempts: Sequence[PushAttempts]) -> None:
    """Adds attempts to the counts of their minutes.  Those of deleted subscriptions are not written."""
    columns = {
        "subscription_ids": [each.subscription_id for each in attempts],
        "minutes": [each.minute for each in attempts],
        "statuses": [each.status for each in attempts],
        "delivered": [each.delivered for each in attempts],
        "requests": [each.requests for each in attempts],
        "latencies": [each.latency for each in attempts],
        "last_message_ids": [each.last_message_id for each in attempts],
    }
    await connection.exec_driver_sql(_RECORD_PUSH_ATTEMPTS, columns)


async def record_breaker_changes(connection: ResourceConnection, *, changes: Sequence[BreakerChange]) -> None:
    """Writes changes down, oldest first, and drops all but the newest MAX_BREAKER_CHANGES of each subscription."""
    subscription_ids = [each.subscription_id for each in changes]
    columns = {
        "subscription_ids": subscription_ids,
        "changed_at": [each.changed_at for each in changes],
        "states": [each.state for each in changes],
        "consecutive_failures": [each.consecutive_failures for each in changes],
        "statuses": [each.status for each in changes],
        "reasons": [storable(each.reason[:MAX_EXCERPT]) for each in changes],
    }
    await connection.exec_driver_sql(_RECORD_BREAKER_CHANGES, columns)
    trimmed = {"subscription_ids": sorted(set(subscription_ids)), "kept": MAX_BREAKER_CHANGES}
    await connection.exec_driver_sql(_TRIM_BREAKER_CHANGES, trimmed)


async def list_push_attempts(
    connection: ResourceConnection, *, subscription_id: int, page: PushAttemptPage
) -> list[PushAttempts]:
    """Returns up to one row more than a page: the newest minute first, and within it by status."""
    minute, status = push_attempts.c.minute, push_attempts.c.status
    query = select(push_attempts).where(push_attempts.c.subscription_id == subscription_id, minute >= page.since)
    if page.outcome is not None:
        query = query.where(push_attempts.c.delivered.is_(page.outcome == "DELIVERED"))
    if page.after is not None:
        last_minute, last_status = page.after
        query = query.where(or_(minute < last_minute, and_(minute == last_minute, status > last_status)))
    rows = await connection.execute(query.order_by(minute.desc(), status).limit(page.size + 1))
    return [PushAttempts(**row._mapping) for row in rows]


async def list_breaker_changes(connection: ResourceConnection, *, subscription_id: int) -> list[BreakerChange]:
    """Returns all changes that are kept, the newest first, with the attempts around each."""
    query = select(breaker_changes).where(breaker_changes.c.subscription_id == subscription_id)
    rows = await connection.execute(query.order_by(breaker_changes.c.change_id.desc()))
    changes = [
        BreakerChange(**{name: value for name, value in row._mapping.items() if name != "change_id"})
        for row in rows
    ]
    if changes:
        counted = select(push_attempts).where(push_attempts.c.subscription_id == subscription_id)
        in_order = counted.order_by(push_attempts.c.minute, push_attempts.c.status)
        for row in await connection.execute(in_order):
            attempts = PushAttempts(**row._mapping)
            for change in changes:
                if change.takes(attempts):
                    change.attempts.append(attempts)
    return changes


async def delete_old_push_attempts(connection: Connection, *, now: datetime) -> None:
    """Deletes the counts of minutes that are older than ATTEMPTS_KEPT."""
    await connection.execute(_DELETE_OLD, {"before": now - ATTEMPTS_KEPT})
