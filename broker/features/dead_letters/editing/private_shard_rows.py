"""The private shard of a subscription: a log of messages that no other subscription receives (G2).

It belongs to no topic: its `topic_id` is the negated id of the subscription.  It is open only while a message is
appended, so the janitor deletes it as any other closed shard, once no cursor has messages in it.
"""

from datetime import datetime

from sqlalchemy import func, insert, select

from broker.core.catalog.shard_levels import insert_shards
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import cursors, held_claims, known_shards
from broker.model.due_attempt import first_due_floor
from broker.model.subscription import Subscription
from broker.model.timestamps import whole_milliseconds


async def find_private_shard(
    connection: ResourceConnection, *, subscription: Subscription, now: datetime
) -> tuple[int, bool]:
    """Returns the private shard of a subscription whose row the caller has locked, and whether it was created."""
    owner = -subscription.subscription_id
    known = select(func.min(known_shards.c.shard_id)).where(known_shards.c.topic_id == owner)
    found = await connection.scalar(known)
    if found is not None:
        return int(found), False
    start = whole_milliseconds(now)
    start = max(start, subscription.filter_changed_at or start)
    made = {"topic_id": owner, "ordinal": 0, "last_publish_time": start, "open": False, "level": None}
    [shard_id] = await insert_shards(connection, [made])
    of_it = held_claims.c.subscription_id == subscription.subscription_id
    waits = await connection.scalar(select(held_claims.c.subscription_id).where(of_it))
    position = {"next_publish_time": start, "next_seq": 1, "due_floor": first_due_floor(now), "first_seq": 1}
    await connection.execute(
        insert(cursors).values(
            shard_id=shard_id,
            subscription_id=subscription.subscription_id,
            paused=waits is not None,
            **position,
        )
    )
    return shard_id, True
