"""Deletes subscriptions that are not used, as their expiration policies say."""

import logging

from broker.access.policies.policy_rows import forget_policy
from broker.core.context.core import Core
from broker.core.expiration.expiration_rows import (
    delete_expired_subscription,
    find_expired_subscriptions,
    watch_idle_subscriptions,
)
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.observability.log import extra, fields_of

_BATCH = 100

logger = logging.getLogger(__name__)


class SubscriptionExpirer:
    """The expirer of a process.  Each deletion is decided on the locked row, so processes need not coordinate."""

    def __init__(self, core: Core, activity: SubscriptionActivity) -> None:
        self._database = core.database
        self._clock = core.clock
        self._activity = activity
        self._wake_ups = core.wake_ups

    async def run_once(self) -> int:
        """Look at what is idle, and delete what has expired.  Returns the number of subscriptions deleted."""
        await self._activity.record()
        async with self._database.connection() as connection:
            await watch_idle_subscriptions(connection, now=self._clock.now())
        deleted = 0
        more = True
        while more:
            async with self._database.connection() as connection:
                names = await find_expired_subscriptions(connection, now=self._clock.now(), limit=_BATCH)
            deleted += sum([await self._delete(name) for name in names])
            more = len(names) == _BATCH
        return deleted

    async def _delete(self, name: str) -> bool:
        async with self._database.transaction() as connection:
            idle = await delete_expired_subscription(connection, name=name, now=self._clock.now())
            if idle is not None:
                await forget_policy(connection, schema=self._database.schema, resource=name)
        if idle is None:
            return False  # it was used, changed or deleted a moment ago
        await self._wake_ups.announce(name)
        about = extra(fields_of(name, event="subscription_expired"))
        logger.info(
            "subscription %s was deleted by its expiration policy: nobody used it for %s", name, idle, extra=about
        )
        return True
