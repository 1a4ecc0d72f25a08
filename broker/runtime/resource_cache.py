"""Topics and subscriptions by name, so that hot calls need not read them (C8).

An entry is dropped when its resource changes: at once in this process, by notification in the others.  Should a
notification be lost, an entry is believed for 30 s at the most.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from broker.domain.errors import NotFound
from broker.domain.subscription import Subscription
from broker.domain.topic import Topic
from broker.store import subscriptions, topics
from broker.store.database import Database

MAX_AGE_SECONDS = 30.0  # C8
MAX_ENTRIES = 20_000  # some 20 MB

Resource = TypeVar("Resource", Topic, Subscription)


class _Entries(Generic[Resource]):
    _load: Callable[[str], Awaitable[Resource]]

    def __init__(self, load: Callable[[str], Awaitable[Resource]]) -> None:
        self._load = load
        self._entries: dict[str, tuple[Resource, float]] = {}
        self._drops = 0

    async def get(self, name: str) -> Resource:
        entry = self._entries.get(name)
        if entry is not None and entry[1] > time.monotonic():
            return entry[0]
        drops = self._drops
        resource = await self._load(name)
        if drops == self._drops:  # else what was read may be older than the change
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.clear()
            self._entries[name] = (resource, time.monotonic() + MAX_AGE_SECONDS)
        return resource

    def drop(self, name: str | None) -> None:
        self._drops += 1
        if name is None:
            self._entries.clear()
        else:
            self._entries.pop(name, None)


class ResourceCache:
    """Reads topics and subscriptions through a bounded cache."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._topics = _Entries[Topic](self._load_topic)
        self._subscriptions = _Entries[Subscription](self._load_subscription)

    async def topic(self, name: str) -> Topic:
        """The topic of this full name.  Raises NotFound."""
        return await self._topics.get(name)

    async def subscription(self, name: str) -> Subscription:
        """The subscription of this full name.  Raises NotFound."""
        return await self._subscriptions.get(name)

    def drop(self, name: str | None) -> None:
        """Forget one resource, or (None) all of them.

        A topic takes all subscriptions along: its retention and its end concern those on it, and those that have it
        as their dead-letter topic.
        """
        self._topics.drop(name)
        is_topic = name is not None and "/topics/" in name
        self._subscriptions.drop(None if is_topic else name)

    async def _load_topic(self, name: str) -> Topic:
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=name)
        if topic is None:
            raise NotFound(f"Topic not found (resource={name.rpartition('/')[2]}).")
        return topic

    async def _load_subscription(self, name: str) -> Subscription:
        async with self._database.transaction() as connection:
            subscription = await subscriptions.find_subscription(connection, name=name)
        if subscription is None:
            raise NotFound(f"Subscription does not exist (resource={name.rpartition('/')[2]}).")
        return subscription
