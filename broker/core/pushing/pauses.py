"""Pauses that the broker begins itself: an endpoint asks for no more pushes, or the broker may not push to it."""

import asyncio
from collections.abc import Callable

from broker.core.catalog.push_state_rows import pause_pushes
from broker.core.context.core import Core
from broker.core.pushing.client.target import shown_origin
from broker.core.pushing.endpoint import Endpoint
from broker.core.pushing.health.endpoint_health import GONE_AFTER
from broker.model.errors import BrokerError
from broker.model.pause import gone_reason, withheld_reason

_AGAIN_SECONDS = 1.0  # after a pause that could not be written to the database


class PushPauses:
    """An endpoint is closed at once, and its subscription paused soon."""

    def __init__(self, core: Core, *, not_taken: Callable[[Endpoint], None]) -> None:
        """`not_taken(endpoint)`: the database did not take its pause; what asked for it will do so again."""
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._tasks = core.tasks
        self._not_taken = not_taken

    def gone(self, endpoint: Endpoint) -> None:
        """Pauses an endpoint that has answered several messages with 410, until somebody resumes it."""
        origin = shown_origin(endpoint.subscription.push_config.endpoint)
        self._begin(endpoint, gone_reason(origin, GONE_AFTER))

    def denied(self, endpoint: Endpoint, why: str) -> None:
        """Pauses a subscription until the broker may push to it.

        A pause that an operator began is not replaced.
        """
        self._begin(endpoint, withheld_reason(why), unless_paused=True)

    def _begin(self, endpoint: Endpoint, reason: str, *, unless_paused: bool = False) -> None:
        if not endpoint.closed:
            endpoint.closed = True
            pause = self._pause(endpoint, reason, unless_paused=unless_paused)
            self._tasks.start(pause, name=f"pause {endpoint.subscription.name}")

    async def _pause(self, endpoint: Endpoint, reason: str, *, unless_paused: bool) -> None:
        """Pauses a subscription, unless it is pushed elsewhere by now."""
        try:
            async with self._database.transaction() as connection:
                await pause_pushes(
                    connection,
                    subscription_id=endpoint.subscription_id,
                    reason=reason,
                    now=self._clock.now(),
                    endpoint=endpoint.subscription.push_config.endpoint,
                    unless_paused=unless_paused,
                )
            await self._wake_ups.announce(endpoint.subscription.name)
        except BrokerError:
            await asyncio.sleep(_AGAIN_SECONDS)
            self._not_taken(endpoint)
