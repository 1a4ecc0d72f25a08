"""Calls that are not hot (topics, subscriptions, snapshots, …): a few at a time, and so long."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec

from broker.domain.names import project_within

P = ParamSpec("P")

HOT = frozenset(
    {
        "Publisher.Publish",
        "Subscriber.Pull",
        "Subscriber.Acknowledge",
        "Subscriber.ModifyAckDeadline",
        "Nack",
        "Reject",
    }
)
LOOKING = frozenset(
    {
        "ExportTopic",
        "TestFilter",
        "ListLag",
        "ListSubscriptionMessages",
        "ListTopicMessages",
        "TailSubscription",
        "TailTopic",
    }
)  # which have turns of their own
WAITING = frozenset({"Operations.WaitOperation"})  # which wait without a turn
UNBOUNDED = HOT | LOOKING | WAITING


class ResourceCalls:
    """Bounds the handlers that it wraps, all together, of whichever door."""

    def __init__(self, turn_of: Callable[[str], AbstractAsyncContextManager[None]]) -> None:
        """A turn of a project lasts while a call of it is under way (runtime/resource_turns.py)."""
        self._turn_of = turn_of

    def bounded(
        self, handler: Callable[P, Awaitable[bytes]], resource_of: Callable[P, str]
    ) -> Callable[P, Awaitable[bytes]]:
        """`handler`, once the project of the resource has a turn; Unavailable past the limits."""

        async def call_within_limits(*call: P.args, **options: P.kwargs) -> bytes:
            async with self._turn_of(project_within(resource_of(*call, **options))):
                return await handler(*call, **options)

        return call_within_limits
