"""Creates the private shard of a subscription, for messages that only this subscription receives (G2)."""

from broker.core.context.wake_ups import WakeUps
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import locked_subscription
from broker.db.driver.database import Database
from broker.features.dead_letters.editing.private_shard_rows import find_private_shard


async def private_shard_of(name: str, database: Database, clock: DatabaseClock, wake_ups: WakeUps) -> int:
    """Returns the private shard, which all processes know before it has messages.  Detaching the subscription
    deletes it.

    Raises NotFound.
    """
    async with database.transaction() as connection:
        subscription = await locked_subscription(connection, name)
        shard_id, is_new = await find_private_shard(connection, subscription=subscription, now=clock.now())
    if is_new:
        await wake_ups.announce(name)
    return shard_id
