"""The rows of share links.  A link of a subscription that was deleted is not found."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select

from broker.access.share_links.share_link import ShareLink
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.schema.tables import share_links, subscriptions
from broker.model.page import Page

_LINK = select(share_links, subscriptions.c.name).join(
    subscriptions, subscriptions.c.subscription_id == share_links.c.subscription_id
)


async def insert_share_link(
    connection: ResourceConnection, *, link: ShareLink, subscription_id: int, digest: bytes
) -> None:
    values = {
        "link_id": link.link_id,
        "subscription_id": subscription_id,
        "digest": digest,
        "permissions": list(link.permissions),
        "creator": link.creator,
        "creator_members": sorted(link.creator_members),
        "created_at": link.created_at,
        "expires_at": link.expires_at,
    }
    await connection.execute(insert(share_links).values(values))


async def count_share_links(connection: ResourceConnection, *, subscription_id: int, now: datetime) -> int:
    """Counts the links that have not expired."""
    query = select(func.count()).where(
        share_links.c.subscription_id == subscription_id, share_links.c.expires_at > now
    )
    return await connection.scalar(query) or 0


async def find_share_link(connection: ResourceConnection, *, digest: bytes) -> ShareLink | None:
    row = (await connection.execute(_LINK.where(share_links.c.digest == digest))).one_or_none()
    return None if row is None else _share_link(row)


async def list_share_links(
    connection: ResourceConnection, *, subscription_id: int, now: datetime, page: Page
) -> list[ShareLink]:
    """Lists a page of the links that have not expired, by id, and one more."""
    query = _LINK.where(
        share_links.c.subscription_id == subscription_id,
        share_links.c.expires_at > now,
        share_links.c.link_id > page.after,
    )
    rows = await connection.execute(query.order_by(share_links.c.link_id).limit(page.size + 1))
    return [_share_link(row) for row in rows]


async def find_share_link_by_id(
    connection: ResourceConnection, *, subscription_id: int, link_id: str
) -> ShareLink | None:
    query = _LINK.where(share_links.c.subscription_id == subscription_id, share_links.c.link_id == link_id)
    row = (await connection.execute(query.with_for_update(of=share_links))).one_or_none()
    return None if row is None else _share_link(row)


async def delete_share_link(connection: ResourceConnection, *, link_id: str) -> None:
    await connection.execute(delete(share_links).where(share_links.c.link_id == link_id))


async def delete_ended_share_links(connection: Connection, *, now: datetime) -> None:
    """Deletes links that have expired, and those of subscriptions that were deleted."""
    await connection.execute(
        b"DELETE FROM share_links WHERE expires_at < %s OR NOT EXISTS"
        b" (SELECT FROM subscriptions s WHERE s.subscription_id = share_links.subscription_id)",
        [now],
    )


def _share_link(row: Any) -> ShareLink:
    return ShareLink(
        subscription=row.name,
        link_id=row.link_id,
        permissions=row.permissions,
        creator=row.creator,
        creator_members=frozenset(row.creator_members),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
