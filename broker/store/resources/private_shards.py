"""The private shard of a subscription: a log of messages that it alone gets, beside those of its topic (G2).

No topic has it: its `topic_id` is the subscription's, negative.  It is closed but while something is appended, so
the janitor deletes it as any other closed one, once nothing stands in it.
"""

from datetime import datetime

from sqlalchemy import func, insert, select

from broker.domain.subscription import Subscription
from broker.domain.timestamps import whole_milliseconds
from broker.store.driver.database import ResourceConnection
from broker.store.log.due_attempt import first_due_floor
from broker.store.schema.tables import cursors, shards


async def find_private_shard(
    connection: ResourceConnection, *, subscription: Subscription, now: datetime
) -> tuple[int, bool]:
    """Of a subscription whose row the caller has locked; made if there is none.  True: it was made."""
    owner = -subscription.subscription_id
    found = await connection.scalar(select(func.min(shards.c.shard_id)).where(shards.c.topic_id == owner))
    if found is not None:
        return int(found), False
    start = whole_milliseconds(now)
    made = {"topic_id": owner, "ordinal": 0, "last_publish_time": start, "open": False}
    shard_id = await connection.scalar(insert(shards).values(made).returning(shards.c.shard_id))
    assert shard_id is not None
    waits = select(func.coalesce(func.bool_or(cursors.c.paused), False)).where(
        cursors.c.subscription_id == subscription.subscription_id
    )
    position = {"next_publish_time": start, "next_seq": 1, "due_floor": first_due_floor(now), "first_seq": 1}
    await connection.execute(
        insert(cursors).values(
            shard_id=shard_id,
            subscription_id=subscription.subscription_id,
            paused=waits.scalar_subquery(),
            **position,
        )
    )
    return int(shard_id), True
