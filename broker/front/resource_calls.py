"""Calls that are not hot (topics, subscriptions, snapshots, …): a few at a time, and so long."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec

from broker.domain.errors import Unavailable

P = ParamSpec("P")

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

    def __init__(
        self,
        turn_of: Callable[[str], AbstractAsyncContextManager[None]],
        trial_turn_of: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        """A turn of a project lasts while a call of it is under way (runtime/resource_turns.py).  Trials of filters
        have their own: they take long, and run one at a time.
        """
        self._turn_of, self._trial_turn_of = turn_of, trial_turn_of

    def bounded(
        self, handler: Callable[P, Awaitable[bytes]], resource_of: Callable[P, str], *, trial: bool = False
    ) -> Callable[P, Awaitable[bytes]]:
        """`handler`, once the project of the resource has a turn; Unavailable past the limits."""

        turn_of = self._trial_turn_of if trial else self._turn_of

        async def call_within_limits(*call: P.args, **options: P.kwargs) -> bytes:
            project = "/".join(resource_of(*call, **options).split("/", 2)[:2])
            try:
                async with asyncio.timeout(LONGEST_SECONDS), turn_of(project):
                    return await handler(*call, **options)
            except TimeoutError:
                raise Unavailable("The database does not answer; the call may or may not have worked.") from None

        return call_within_limits
