"""Caches topics, subscriptions and resources of features by name, so that hot calls need not read them (C8).

An entry is dropped when its resource changes: at once in this process, by a notification in the others.  If a
notification is lost, an entry is used for 30 s at most.  Missing entries are read in batches.  Entries in use are
refreshed in batches before they expire, while no call waits for them: ten thousand subscriptions that are pulled
occasionally would otherwise keep a processor busy.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.catalog.subscription_listener import SubscriptionListener
from broker.core.process.tasks import Tasks
from broker.db.driver.database import Database, ResourceConnection
from broker.model.ack_id import AttemptName
from broker.model.errors import BrokerError, NotFound, Unavailable
from broker.model.names import not_found
from broker.model.subscription import Subscription
from broker.model.topic import Topic
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import CACHE_READS

MAX_AGE_SECONDS = 30.0  # C8
MAX_ENTRIES = 20_000  # some 20 MB
AGEING_SECONDS = 10.0  # the age from which on an entry in use is read again
REFRESH_PAUSE_SECONDS = 0.5  # between two such reads
_BATCH, _REFRESH_BATCH = 200, 1_000  # names that one statement reads while callers wait, and while none does
READ_SECONDS = 5.0  # for an entry to be read; past it the database counts as away
_SLOW_SECONDS = 2.0  # once a read takes so long, further callers do not wait for it

_HIT, _MISS = CACHE_READS["hit"], CACHE_READS["miss"]

Resource = TypeVar("Resource")
Read = TypeVar("Read", covariant=True)

_LATE = "The database does not answer in time; try again."


class ReadByName(Protocol[Read]):
    """Reads resources of one kind, as far as they exist, by name."""

    async def __call__(self, connection: ResourceConnection, *, names: Sequence[str]) -> Mapping[str, Read]: ...


class Entries(Generic[Resource]):
    """The resources of one kind that are in memory."""

    _load: Callable[[Sequence[str]], Awaitable[Mapping[str, Resource]]]

    def __init__(
        self,
        load: Callable[[Sequence[str]], Awaitable[Mapping[str, Resource]]],
        tasks: Tasks,
        counts: memoryview,
    ) -> None:
        self._load = load
        self._counts = counts
        self._tasks = tasks
        self._entries: dict[str, tuple[Resource, float]] = {}
        self._wanted: dict[str, asyncio.Future[Resource | None]] = {}
        self._loading = False  # owned by _run, as is the time when the current read began
        self._began = 0.0
        self._reads: list[set[str | None]] = []  # by read in progress: names dropped since (None: all)
        self._ageing: dict[str, None] = {}  # names, in the order in which they were used
        self._refreshing = False

    def peek(self, name: str) -> Resource | None:
        """Returns what is cached, without reading."""
        entry = self._entries.get(name)
        return entry[0] if entry is not None else None

    async def get(self, name: str) -> Resource | None:
        """The resource of this name, read if it is not in memory; None: there is none.  Raises Unavailable."""
        entry = self._entries.get(name)
        if entry is not None and (left := entry[1] - time.monotonic()) > 0:
            if left < MAX_AGE_SECONDS - AGEING_SECONDS:
                self.read_soon(name)
            self._counts[_HIT] += 1
            return entry[0]
        self._counts[_MISS] += 1
        if self._loading and time.monotonic() - self._began > _SLOW_SECONDS:
            raise Unavailable(_LATE)
        if name not in self._wanted:
            self._wanted[name] = asyncio.get_running_loop().create_future()
            if not self._loading:
                self._loading, self._began = True, time.monotonic()
                self._tasks.start(self._run(), name="read resources")
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.shield(self._wanted[name])
        except TimeoutError:
            raise Unavailable(_LATE) from None

    async def _run(self) -> None:
        try:
            while self._wanted:
                # Callers that ask from now on get the result of a later read.
                self._began = time.monotonic()
                asked = {name: self._wanted.pop(name) for name in list(islice(self._wanted, _BATCH))}
                await self._answer(asked)
        finally:
            self._loading = False

    async def _answer(self, asked: Mapping[str, asyncio.Future[Resource | None]]) -> None:
        try:
            found, _ = await self._read(list(asked))
        except BaseException as error:
            stopped = isinstance(error, asyncio.CancelledError)
            for future in asked.values():
                future.set_exception(Unavailable("The broker stops.") if stopped else error)
                future.exception()  # every caller may be gone
            if stopped:
                raise
            return
        for name, future in asked.items():
            future.set_result(found.get(name))

    async def _read(self, names: Sequence[str]) -> tuple[Mapping[str, Resource], set[str]]:
        """Reads resources by name.  Returns them, and the names of those that were cached.

        Resources that changed during the read are not cached, and may be older than the change.
        """
        dropped: set[str | None] = set()
        self._reads.append(dropped)
        try:
            async with asyncio.timeout(READ_SECONDS):  # or callers would be refused when the database is back
                found = await self._load(names)
        except TimeoutError:
            raise Unavailable(_LATE) from None
        finally:
            self._reads = [each for each in self._reads if each is not dropped]  # two may be equal
        current = set[str]() if None in dropped else set(names) - dropped
        self._keep({name: found[name] for name in current & found.keys()})
        return found, current

    def read_soon(self, name: str) -> None:
        self._ageing[name] = None
        if not self._refreshing:
            self._refreshing = True
            self._tasks.start(self._refresh(), name="refresh resources")

    async def _refresh(self) -> None:
        try:
            while self._ageing:
                await asyncio.sleep(REFRESH_PAUSE_SECONDS)
                names = list(islice(self._ageing, _REFRESH_BATCH))
                for name in names:
                    del self._ageing[name]
                with suppress(BrokerError):  # then a caller reads them once they are too old
                    found, current = await self._read(names)
                    for name in current - found.keys():
                        self._entries.pop(name, None)
        finally:
            self._refreshing = False

    def _keep(self, found: Mapping[str, Resource]) -> None:
        if len(self._entries) + len(found.keys() - self._entries.keys()) > MAX_ENTRIES:
            self._entries.clear()
        until, entries = time.monotonic() + MAX_AGE_SECONDS, self._entries
        for name, resource in found.items():
            known = entries.get(name)
            entries[name] = (known[0] if known is not None and known[0] == resource else resource, until)

    def drop(self, name: str | None) -> None:
        for dropped in self._reads:
            dropped.add(name)
        if name is None:
            self._entries.clear()
        else:
            self._entries.pop(name, None)


class ResourceCache:
    """Reads topics and subscriptions through a bounded cache."""

    def __init__(
        self,
        database: Database,
        tasks: Tasks,
        *,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._database = database
        self._listeners: list[SubscriptionListener] = []
        self._tasks = tasks
        self._topics = Entries[Topic](self._load_topics, tasks, self._counters.process)
        self._subscriptions = Entries[Subscription](self._load_subscriptions, tasks, self._counters.process)
        self._dead_lettering = Entries[Sequence[str]](self._load_dead_lettering, tasks, self._counters.process)
        self._added: list[Entries[Any]] = []

    def add(self, read: ReadByName[Resource]) -> Entries[Resource]:
        """Cache the resources of a feature, too.  An entry is dropped when the resource of its name changes."""
        load = partial(self._load, read)
        added = Entries[Resource](load, self._tasks, self._counters.process)
        self._added.append(added)
        return added

    def add_listeners(self, listeners: Iterable[SubscriptionListener]) -> None:
        """Notify these, too, of each subscription that is read, here or by a caller of `report_read`."""
        self._listeners.extend(listeners)

    async def topic(self, name: str) -> Topic:
        """The topic of this full name.  Raises NotFound, InvalidArgument (none can have it), Unavailable."""
        topic = await self._topics.get(name)
        if topic is None:
            raise not_found("Topic not found", name, "topics")
        return topic

    def known_topic(self, name: str) -> Topic | None:
        """The topic as it was read last, perhaps a while ago; None if it has to be read."""
        return self._topics.peek(name)

    async def subscription(self, name: str) -> Subscription:
        """The subscription of this full name.  Raises NotFound, InvalidArgument (none can have it), Unavailable."""
        subscription = await self._subscriptions.get(name)
        if subscription is None:
            raise not_found("Subscription does not exist", name, "subscriptions")
        return subscription

    async def dead_lettering(self, topic: str) -> Sequence[str]:
        """The names of the subscriptions that dead-letter to a topic, and of their topics.  Raises Unavailable."""
        return await self._dead_lettering.get(topic) or ()

    def is_current(self, subscription: Subscription) -> bool:
        """Whether no change of the subscription is known since it was read.

        Also False if it is no longer cached.
        """
        return self._subscriptions.peek(subscription.name) is subscription

    def forget(self, subscription: Subscription) -> None:
        """Drop it, if it is what is known still: one that was read later may be newer, and be waited for."""
        if self.is_current(subscription):
            self.drop(subscription.name)

    async def in_known_shards(
        self, subscription: Subscription, messages: Mapping[AttemptName, set[int]]
    ) -> tuple[Mapping[AttemptName, set[int]], dict[AttemptName, set[int]]]:
        """Separates messages in shards of the subscription from those in others, which are stale.

        An ack id may name any shard.  The cached shards may be older than an ack id, so they are read anew before
        one counts as stale.  Raises NotFound, Unavailable.
        """
        if not {attempt.shard_id for attempt in messages}.difference(subscription.shard_ids):
            return messages, {}
        self.forget(subscription)
        known = frozenset((await self.subscription(subscription.name)).shard_ids)
        stale = {attempt: ordinals for attempt, ordinals in messages.items() if attempt.shard_id not in known}
        return {attempt: messages[attempt] for attempt in messages if attempt not in stale}, stale

    async def topic_meant(self, name: str, topic_id: int) -> Topic:
        """The topic of this name that has this id.  Raises as `topic` does; NotFound if another has its name."""
        return await self._meant(self.topic, name, lambda topic: topic.topic_id == topic_id, "topic")

    async def subscription_meant(self, name: str, subscription_id: int) -> Subscription:
        """Likewise."""
        return await self._meant(
            self.subscription, name, lambda found: found.subscription_id == subscription_id, "subscription"
        )

    async def _meant(
        self,
        read: Callable[[str], Awaitable[Resource]],
        name: str,
        is_meant: Callable[[Resource], bool],
        kind: str,
    ) -> Resource:
        """Returns the resource that `is_meant` accepts.

        A cached one may be too old, so it is read anew before it is refused.  Raises NotFound if another resource
        has the name.
        """
        if is_meant(found := await read(name)):
            return found
        self.drop(name)
        if is_meant(found := await read(name)):
            return found
        raise NotFound(f"The {kind} was deleted, another has its name (resource={name}).")

    def drop(self, name: str | None) -> None:
        """Forget one resource, or (None) all of them.

        A topic takes all subscriptions along: its retention and its end concern those on it, and those that have it
        as their dead-letter topic.
        """
        self._counters.forget(name)
        self._topics.drop(name)
        for added in self._added:
            added.drop(name)
        is_topic = name is not None and "/topics/" in name
        self._subscriptions.drop(None if is_topic else name)
        if name is None or is_topic or "/subscriptions/" in name:
            self._dead_lettering.drop(None)  # it is not known to which topic the subscription dead-letters
        if name is not None and any(listener.is_interested(name) for listener in self._listeners):
            self._subscriptions.read_soon(name)

    def report_read(self, subscription: Subscription) -> None:
        """Tell the listeners of a subscription that the caller has read, created or changed."""
        for listener in self._listeners:
            listener.subscription_read(subscription)

    def report_gone(self, name: str) -> None:
        """Tell the listeners that there is no subscription of this name, or that another process pushes it."""
        for listener in self._listeners:
            listener.subscription_gone(name)

    async def _load_topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        async with self._database.transaction() as connection:
            return {topic.name: topic for topic in await topics.find_topics(connection, names=names)}

    async def _load(self, read: ReadByName[Resource], names: Sequence[str]) -> Mapping[str, Resource]:
        async with self._database.transaction() as connection:
            return await read(connection, names=names)

    async def _load_dead_lettering(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        async with self._database.transaction() as connection:
            return await subscriptions.find_dead_lettering(connection, topics=names)

    async def _load_subscriptions(self, names: Sequence[str]) -> Mapping[str, Subscription]:
        async with self._database.transaction() as connection:
            found = await subscriptions.find_subscriptions(connection, names=names)
        by_name = {subscription.name: subscription for subscription in found}
        for name in names:
            if name in by_name:
                self.report_read(by_name[name])
                self._counters.know(by_name[name].subscription_id, name)
            else:
                self.report_gone(name)
        return by_name
