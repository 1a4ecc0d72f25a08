"""Who is told when something can be claimed: the pulls of this process at once, other processes soon after.

`published` and `redeliverable` are called by the coalescers after their commits.  Other processes hear of it by
NOTIFY, sent on a connection of its own, at most every few milliseconds, and never within a publish: NOTIFY takes
a lock that all committing notifiers of the server share.  While there are no others nothing is sent.
"""

import asyncio
from collections.abc import Callable

from broker.domain.errors import BrokerError
from broker.store.driver.database import Database
from broker.store.driver.notifications import ResourceChanged, listen, notify_resource_changed, notify_wake

_SPACING_SECONDS = 0.005  # 200 notifications a second wake as many pulls as 2,000 would


class WakeUps:
    """Spreads wake-ups and resource changes.  `run_sender` and `run_listener` are supervised workers."""

    def __init__(
        self,
        database: Database,
        *,
        wake: Callable[[int | None, int | None], None],
        drop: Callable[[str | None], None],
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wake(shard_id, subscription_id)` and `drop(name)` reach this process's pulls and caches; None: all.

        `is_alone()`: there is no other process.
        """
        self._database = database
        self._wake = wake
        self._drop = drop
        self._is_alone = is_alone
        self._shard_ids: set[int] = set()
        self._subscription_ids: set[int] = set()
        self._something = asyncio.Event()

    def published(self, shard_id: int) -> None:
        """New messages of a shard have been committed."""
        self._wake(shard_id, None)
        if not self._is_alone():
            self._shard_ids.add(shard_id)
            self._something.set()

    def redeliverable(self, subscription_id: int) -> None:
        """Messages of a subscription have a new time of redelivery."""
        self._wake(None, subscription_id)
        if not self._is_alone():
            self._subscription_ids.add(subscription_id)
            self._something.set()

    async def announce(self, name: str) -> None:
        """A topic or subscription has changed and that change is committed."""
        self._drop(name)
        async with self._database.connection() as connection:
            await notify_resource_changed(connection, schema=self._database.schema, name=name)

    async def run_sender(self) -> None:
        """Tell other processes, for ever."""
        while True:
            await self._something.wait()
            self._something.clear()
            shard_ids, self._shard_ids = self._shard_ids, set()
            subscription_ids, self._subscription_ids = self._subscription_ids, set()
            async with self._database.hot() as connection:
                await notify_wake(
                    connection,
                    schema=self._database.schema,
                    shard_ids=shard_ids,
                    subscription_ids=subscription_ids,
                )
            await asyncio.sleep(_SPACING_SECONDS)

    async def run_listener(self) -> None:
        """Hear other processes, until the connection is lost; the supervisor starts it again."""
        try:
            async for announcement in listen(self._database):
                match announcement:
                    case None:  # listening anew: whatever was announced before has been missed
                        self._drop(None)
                        self._wake(None, None)
                    case ResourceChanged(name):
                        self._drop(name)
                    case wake:
                        for shard_id in wake.shard_ids:
                            self._wake(shard_id, None)
                        for subscription_id in wake.subscription_ids:
                            self._wake(None, subscription_id)
        except BrokerError:
            self._drop(None)
            raise
