"""Calls that are not hot (topics, subscriptions, snapshots, …): so many at once, and so long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from broker.domain.errors import Unavailable

P = ParamSpec("P")

MAX_AT_ONCE = 200  # in a process; the database serves eight of them at a time
LONGEST_SECONDS = 20.0  # past it the outcome is unknown

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


class ResourceCalls:
    """Bounds the handlers that it wraps, all together, of whichever door."""

    def __init__(self) -> None:
        self._under_way = 0

    def bounded(self, handler: Callable[P, Awaitable[bytes]]) -> Callable[P, Awaitable[bytes]]:
        """`handler`, refused with Unavailable past the limits."""

        async def call_within_limits(*call: P.args, **options: P.kwargs) -> bytes:
            if self._under_way >= MAX_AT_ONCE:
                raise Unavailable("Too many calls about resources are under way; try again.")
            self._under_way += 1
            try:
                async with asyncio.timeout(LONGEST_SECONDS):
                    return await handler(*call, **options)
            except TimeoutError:
                raise Unavailable("The database does not answer; the call may or may not have worked.") from None
            finally:
                self._under_way -= 1

        return call_within_limits
