"""Rows of the keys that sign access tokens.  Only brokers on this database read them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select

from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import access_token_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTokenKey:
    """`secret` has 32 random bytes; as they are stored they may be encrypted."""

    key_id: str
    secret: bytes
    created_at: datetime


async def list_access_token_keys(connection: ResourceConnection) -> list[AccessTokenKey]:
    """The newest last."""
    order = access_token_keys.c.created_at, access_token_keys.c.key_id
    rows: Any = await connection.execute(select(access_token_keys).order_by(*order))
    return [AccessTokenKey(**row) for row in rows.mappings()]


async def insert_access_token_key(connection: ResourceConnection, *, key: AccessTokenKey) -> None:
    await connection.execute(
        insert(access_token_keys).values(key_id=key.key_id, secret=key.secret, created_at=key.created_at)
    )


async def delete_access_token_keys(connection: ResourceConnection, *, before: datetime) -> None:
    """Delete those that were made before."""
    await connection.execute(delete(access_token_keys).where(access_token_keys.c.created_at < before))
