"""Rows of the keys that sign the tokens of pushes, shared by all brokers on the database."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, insert, select, text, update

from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import signing_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """`private_key` is PEM (PKCS 8), which as it is stored may be encrypted.

    The key signs from `signs_from` on until a newer one does.
    """

    key_id: str
    private_key: str
    signs_from: datetime
    published_until: datetime


async def list_signing_keys(connection: ResourceConnection) -> list[SigningKey]:
    """Lists all keys, the one that signs first at the front."""
    rows = await connection.execute(select(signing_keys).order_by(signing_keys.c.signs_from, signing_keys.c.key_id))
    return [SigningKey(**row) for row in rows.mappings()]


async def insert_signing_key(
    connection: ResourceConnection, *, key: SigningKey, after: str | None, others_published_until: datetime
) -> bool:
    """Add a key if the newest one is still `after` (None: there is none), and set when the others end.

    Returns False if another process was faster.  The lock is held to the end of the transaction.
    """
    await connection.execute(text("LOCK TABLE signing_keys IN SHARE ROW EXCLUSIVE MODE"))
    keys = await list_signing_keys(connection)  # a separate statement, which sees what the lock waited for
    if (keys[-1].key_id if keys else None) != after:
        return False
    if after is not None:
        await connection.execute(
            update(signing_keys)
            .where(signing_keys.c.key_id == after)
            .values(published_until=others_published_until)
        )
    await connection.execute(
        insert(signing_keys).values(
            key_id=key.key_id,
            private_key=key.private_key,
            signs_from=key.signs_from,
            published_until=key.published_until,
        )
    )
    return True


async def delete_signing_keys(connection: ResourceConnection, *, now: datetime) -> int:
    """Delete the keys that are no longer published.  Returns how many."""
    return (await connection.execute(delete(signing_keys).where(signing_keys.c.published_until < now))).rowcount
