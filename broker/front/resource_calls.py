"""Calls that are not hot (topics, subscriptions, snapshots, …): a few at a time, and so long."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, Protocol

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


class TurnOf(Protocol):
    """A turn of a project (runtime/resource_turns.py); `is_short`: the answer is not large."""

    def __call__(self, project: str, *, is_short: bool) -> AbstractAsyncContextManager[None]: ...


class ResourceCalls:
    """Bounds the handlers that it wraps, all together, of whichever door."""

    def __init__(self, turn_of: TurnOf) -> None:
        """A turn of a project lasts while a call of it is under way."""
        self._turn_of = turn_of

    def bounded(
        self, handler: Callable[P, Awaitable[bytes]], payer: Callable[P, str], *, is_short: bool = False
    ) -> Callable[P, Awaitable[bytes]]:
        """`handler`, once its payer (front/payer.py) has a turn; Unavailable past the limits.  `is_short`: its
        answer is not large.
        """

        async def call_within_limits(*call: P.args, **options: P.kwargs) -> bytes:
            async with self._turn_of(payer(*call, **options), is_short=is_short):
                return await handler(*call, **options)

        return call_within_limits
