"""Rows of `push_failures`: the last failed attempts of each push subscription."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.text import storable
from broker.db.schema.tables import push_failures
from broker.model.push_state import MAX_EXCERPT, MAX_KEPT_FAILURES, PushFailure, PushFailurePage

_RECORD_PUSH_FAILURES = statements.load("record_push_failures")
_TRIM_PUSH_FAILURES = statements.load("trim_push_failures")


async def record_push_failures(connection: ResourceConnection, *, failures: Sequence[PushFailure]) -> int:
    """Write failures down, oldest first, and drop all but the newest MAX_KEPT_FAILURES of each subscription.

    Returns how many were written: those of subscriptions that are deleted are not.  Texts are stored as far as they
    can be, details to MAX_EXCERPT characters.
    """
    subscription_ids = [f.subscription_id for f in failures]
    columns: dict[str, list[Any]] = {
        "subscription_ids": subscription_ids,
        "failed_at": [f.failed_at for f in failures],
        "message_ids": [storable(f.message_id) for f in failures],
        "delivery_attempts": [f.delivery_attempt for f in failures],
        "endpoints": [storable(f.endpoint) for f in failures],
        "statuses": [f.status for f in failures],
        "latencies": [f.latency for f in failures],
        "details": [storable(f.detail[:MAX_EXCERPT]) for f in failures],
    }
    written = (await connection.exec_driver_sql(_RECORD_PUSH_FAILURES, columns)).rowcount
    trimmed = {"subscription_ids": sorted(set(subscription_ids)), "kept": MAX_KEPT_FAILURES}
    await connection.exec_driver_sql(_TRIM_PUSH_FAILURES, trimmed)
    return written


async def list_push_failures(
    connection: ResourceConnection, *, subscription_id: int, page: PushFailurePage
) -> list[PushFailure]:
    """Lists a page of failures, newest first, and one failure more."""
    query = select(push_failures).where(push_failures.c.subscription_id == subscription_id)
    if page.message_id:
        query = query.where(push_failures.c.message_id == page.message_id)
    if page.before is not None:
        query = query.where(push_failures.c.failure_id < page.before)
    rows = await connection.execute(query.order_by(push_failures.c.failure_id.desc()).limit(page.size + 1))
    return [PushFailure(**row._mapping) for row in rows]
