"""Calls that are not hot (topics, subscriptions, snapshots, …): a few at a time, and so long."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec

from broker.domain.names import project_within
from broker.runtime.resource_turns import ResourceTurns

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

    def __init__(self, turns: ResourceTurns) -> None:
        """A turn of a project lasts while a call of it is under way."""
        self._turns = turns

    def bounded(
        self, handler: Callable[P, Awaitable[bytes]], resource_of: Callable[P, str], *, is_short: bool = False
    ) -> Callable[P, Awaitable[bytes]]:
        """`handler`, once the project of the resource has a turn; Unavailable past the limits.  `is_short`: as of
        ResourceTurns.of.
        """

        async def call_within_limits(*call: P.args, **options: P.kwargs) -> bytes:
            async with self._turns.of(project_within(resource_of(*call, **options)), is_short=is_short):
                return await handler(*call, **options)

        return call_within_limits
