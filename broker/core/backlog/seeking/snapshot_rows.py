"""Rows of `snapshots`, and the messages of each."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.core.backlog.seeking.snapshot import Snapshot
from broker.core.catalog.listed_names import is_listed
from broker.db.driver import statements
from broker.db.driver.database import Connection, driver_of
from broker.db.driver.in_doubt import wait_until_heard
from broker.db.driver.named import change, fetch
from broker.db.schema.tables import snapshot_outstanding, snapshot_positions, snapshots
from broker.model.page import Page
from broker.model.subscription import Subscription

_CREATE_SNAPSHOT = statements.load("create_snapshot")
_READ_OLDEST_IN_SNAPSHOT = statements.load("read_oldest_in_snapshot")
_DELETE_EXPIRED_SNAPSHOTS = statements.load("delete_expired_snapshots")
_FORGET_SNAPSHOTS = (
    b"DELETE FROM snapshot_outstanding WHERE snapshot_id = ANY (%s)",
    b"DELETE FROM snapshot_positions WHERE snapshot_id = ANY (%s)",
)


def _snapshot(row: Row[Any]) -> Snapshot:
    return Snapshot(
        snapshot_id=row.snapshot_id,
        name=row.name,
        topic=row.topic,
        topic_id=row.topic_id,
        labels=row.labels,
        expire_time=row.expire_time,
        created_at=row.created_at,
    )


async def insert_snapshot(
    connection: AsyncConnection,
    *,
    name: str,
    labels: Mapping[str, str],
    subscription: Subscription,
    retained_since: datetime,
    now: datetime,
) -> tuple[Snapshot, datetime | None] | None:
    """Take a snapshot of a subscription; None if the name is taken.

    Returns it (its expire_time is `now` until the caller has decided on one) and the publish time of the oldest
    message that it holds, if there is one.
    """
    await connection.execute(delete(snapshots).where(snapshots.c.name == name, snapshots.c.expire_time <= now))
    snapshot_id = await connection.scalar(
        pg_insert(snapshots)
        .values(
            name=name,
            topic=subscription.topic,
            topic_id=subscription.topic_id,
            labels=labels,
            expire_time=now,
            created_at=now,
        )
        .on_conflict_do_nothing()
        .returning(snapshots.c.snapshot_id)
    )
    if snapshot_id is None:
        return None
    where = {"snapshot_id": snapshot_id, "subscription_id": subscription.subscription_id}
    await change(connection, _CREATE_SNAPSHOT, where)
    held = {"snapshot_id": snapshot_id, "retained_since": retained_since}
    [(oldest,)] = await fetch(connection, _READ_OLDEST_IN_SNAPSHOT, held)
    found = (await connection.execute(select(snapshots).where(snapshots.c.snapshot_id == snapshot_id))).one()
    return _snapshot(found), oldest


async def find_snapshot(
    connection: AsyncConnection, *, name: str, now: datetime, lock: bool = False
) -> Snapshot | None:
    """The snapshot of this name, unless it has expired; with `lock` it stays until the transaction ends."""
    query = select(snapshots).where(snapshots.c.name == name, snapshots.c.expire_time > now)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is not None and lock:
        await wait_until_heard(await driver_of(connection))
    return None if row is None else _snapshot(row)


async def find_labelled(
    connection: AsyncConnection, *, topic_id: int, label: tuple[str, str], now: datetime
) -> Snapshot | None:
    """The newest of a topic's snapshots that has this label and has not expired; it stays until the transaction
    ends.
    """
    key, value = label
    query = select(snapshots).where(
        snapshots.c.topic_id == topic_id, snapshots.c.expire_time > now, snapshots.c.labels[key].astext == value
    )
    newest = query.order_by(snapshots.c.created_at.desc(), snapshots.c.snapshot_id.desc()).limit(1)
    row = (await connection.execute(newest.with_for_update())).one_or_none()
    if row is None:
        return None
    await wait_until_heard(await driver_of(connection))
    return _snapshot(row)


async def update_snapshot(connection: AsyncConnection, *, snapshot: Snapshot) -> None:
    """Write a snapshot's mutable fields."""
    await connection.execute(
        update(snapshots)
        .where(snapshots.c.snapshot_id == snapshot.snapshot_id)
        .values(labels=snapshot.labels, expire_time=snapshot.expire_time)
    )


async def delete_snapshot(connection: AsyncConnection, *, snapshot_id: int) -> None:
    """Delete a snapshot and let go of what it holds."""
    for table in (snapshots, snapshot_positions, snapshot_outstanding):
        await connection.execute(delete(table).where(table.c.snapshot_id == snapshot_id))


async def list_snapshots(connection: AsyncConnection, *, project: str, page: Page, now: datetime) -> list[Snapshot]:
    """Lists a page of a project's snapshots, by name, and one snapshot more."""
    listed = is_listed(snapshots.c.name, project, "snapshots", page)
    query = select(snapshots).where(listed, snapshots.c.expire_time > now)
    rows = await connection.execute(query.order_by(snapshots.c.name).limit(page.size + 1))
    return [_snapshot(row) for row in rows]


async def delete_expired_snapshots(connection: Connection, *, now: datetime) -> None:
    """Delete the snapshots whose time is over."""
    async with connection.transaction():
        expired = await connection.execute(_DELETE_EXPIRED_SNAPSHOTS, {"now": now})
        ids = [snapshot_id for (snapshot_id,) in await expired.fetchall()]
        for statement in _FORGET_SNAPSHOTS if ids else ():
            await connection.execute(statement, [ids])
