"""Limits how many calls about resources (topics, subscriptions, snapshots, …) run at a time, and for how long."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, Protocol

from broker.api.limits.hot_calls import HotCalls
from broker.api.rpc import Kind

P = ParamSpec("P")


class TurnOf(Protocol):
    """A turn of a project (fairness/resource_turns.py); `is_short`: the answer is not large."""

    def __call__(self, project: str, *, is_short: bool) -> AbstractAsyncContextManager[None]: ...


class ResourceCalls:
    """Bounds the handlers that it wraps, all together, of whichever API."""

    def __init__(self, turn_of: TurnOf) -> None:
        """A turn of a project lasts while a call of it is under way."""
        self._turn_of = turn_of

    def bounded(
        self, handler: Callable[P, Awaitable[bytes]], payer: Callable[P, str], *, is_short: bool = False
    ) -> Callable[P, Awaitable[bytes]]:
        """`handler`, once its payer (api/payer.py) has a turn; Unavailable past the limits.  `is_short`: its
        answer is not large.
        """

        async def call_within_limits(*call: P.args, **options: P.kwargs) -> bytes:
            async with self._turn_of(payer(*call, **options), is_short=is_short):
                return await handler(*call, **options)

        return call_within_limits


def bounded(
    kind: Kind,
    handler: Callable[P, Awaitable[bytes]],
    *,
    resource_of: Callable[P, str],
    payer: Callable[P, str],
    resource_calls: ResourceCalls,
    hot_calls: HotCalls,
) -> Callable[P, Awaitable[bytes]]:
    """`handler` of a call of that kind, within the limits that the kind has.

    `resource_of`: the resource that a hot call is about; `payer`: in whose share any other call counts.
    """
    match kind:
        case Kind.HOT:
            return hot_calls.bounded(handler, resource_of)
        case Kind.QUERY | Kind.CHANGE:
            return resource_calls.bounded(handler, payer, is_short=kind is Kind.CHANGE)
        case _:
            return handler
