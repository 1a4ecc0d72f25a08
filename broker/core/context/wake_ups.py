"""Wakes consumers when messages can be claimed: the pulls of this process at once, other processes soon after.

The coalescers call `published` and `redeliverable` after their commits.  Other processes are woken by NOTIFY on a
separate connection, at most every few milliseconds and never within a publish, because NOTIFY takes a lock that all
committing notifiers of the server share.  Nothing is sent if there are no other processes.  If the database does
not support NOTIFY, processes poll ten times a second.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from broker.core.catalog.resource_cache import MAX_AGE_SECONDS
from broker.db.driver.database import Database
from broker.db.driver.notification_seal import NotificationSeal, read_seal
from broker.db.driver.notifications import (
    AccessChanged,
    Announcement,
    Committed,
    NoNotifications,
    ResourceChanged,
    Unreadable,
    listen,
    notify_resources_changed,
    notify_wake,
)
from broker.model.errors import BrokerError
from broker.observability.state_changes import StateChanges

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 0.1  # without notifications: between two checks for publishes of other processes
_POLLS = 10  # after so many checks everything is polled: released messages and changed resources
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
        access_changed: Callable[[], None] = lambda: None,
        committed: Callable[[], None] = lambda: None,
        poll: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`wake(shard_id, subscription_id)` and `drop(name)` reach this process's pulls and caches; None: all.

        `is_alone()`: there is no other process.  `access_changed()`: a credential or a policy has, or may have.
        `committed()`: a transaction of an application's has, with rows of the outbox.  `look()` looks for what
        others have published.
        """
        self._database = database
        self._wake = wake
        self._drop = drop
        self._is_alone = is_alone
        self._access_changed = access_changed
        self._committed = committed
        self._poll = poll
        self._seal: NotificationSeal | None = None  # read from the database once; it does not change
        self._shard_ids: set[int] = set()
        self._subscription_ids: set[int] = set()
        self._unreported: set[str] = set()  # names of changed resources that could not be announced
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

    async def announce(self, *names: str) -> None:
        """Announces a committed change of topics or subscriptions; other processes hear of it before the answer.

        If they cannot be notified now the call is answered all the same, since it has succeeded: they are notified
        as soon as possible, and use what they have cached for 30 seconds at most.
        """
        for name in names:
            self._drop(name)
        try:
            await self._notify_of_changes(names)
        except BrokerError as error:
            logger.debug("other processes are told later that %s changed: %s", names[0], error)
            self._unreported.update(names)
            self._something.set()

    async def _notify_of_changes(self, names: Collection[str]) -> None:
        seal = await self._read_seal()
        async with self._database.connection() as connection:
            await notify_resources_changed(connection, schema=self._database.schema, seal=seal, names=names)

    async def _read_seal(self) -> NotificationSeal:
        if self._seal is None:
            async with self._database.connection() as connection:
                self._seal = await read_seal(connection)
        return self._seal

    async def run_sender(self) -> None:
        """Tell other processes, for ever."""
        while True:
            await self._something.wait()
            self._something.clear()
            await self._notify_of_pending()
            shard_ids, self._shard_ids = self._shard_ids, set()
            subscription_ids, self._subscription_ids = self._subscription_ids, set()
            seal = await self._read_seal()
            async with self._database.hot() as connection:
                await notify_wake(
                    connection,
                    schema=self._database.schema,
                    seal=seal,
                    shard_ids=shard_ids,
                    subscription_ids=subscription_ids,
                )
            await asyncio.sleep(_SPACING_SECONDS)

    async def _notify_of_pending(self) -> None:
        if self._unreported:
            names = tuple(self._unreported)
            try:
                await self._notify_of_changes(names)
            except BrokerError:
                self._something.set()  # for the next start of this worker
                raise
            self._unreported.difference_update(names)

    async def run_listener(self, states: StateChanges | None = None) -> None:
        """Listens to other processes until the connection is lost; the supervisor starts it again.

        `states` reports notifications that no broker has sent.
        """
        states = states or StateChanges()
        try:
            async for announcement in listen(self._database):
                self._heard(announcement, states)
        except NoNotifications as error:
            logger.warning(
                "The database has no LISTEN (%s): what other processes publish is seen within %g s, what they give"
                " back within %g s, and changes of topics and subscriptions within %g s.",
                error, _CHECK_SECONDS, _POLLS * _CHECK_SECONDS, MAX_AGE_SECONDS,
            )  # fmt: skip
            await self._poll_for_ever()
        except BrokerError:
            self._drop(None)
            raise

    def _heard(self, announcement: Announcement | None, states: StateChanges) -> None:
        match announcement:
            case None:  # listening again: earlier notifications were missed
                self._drop(None)
                self._wake(None, None)
                self._access_changed()
            case Committed():
                self._committed()
            case AccessChanged():
                self._access_changed()
            case ResourceChanged(name):
                self._drop(name)
            case Unreadable(channel):
                states.happens(
                    "foreign notifications",
                    channel,
                    f"another program sends notifications on the channel {channel}, which are ignored",
                    "no broker of this schema has sealed them",
                )
            case wake:
                for shard_id in wake.shard_ids:
                    self._wake(shard_id, None)
                for subscription_id in wake.subscription_ids:
                    self._wake(None, subscription_id)

    async def _poll_for_ever(self) -> None:
        while True:
            self._wake(None, None)
            self._access_changed()
            self._committed()
            for _ in range(_POLLS):
                await asyncio.sleep(_CHECK_SECONDS)
                if self._poll is not None:
                    await self._poll()
