"""Implements Pull (A7): returns messages now, or as soon as there are some."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from msgspec.structs import replace

from broker.core.catalog.resource_cache import ResourceCache
from broker.core.context.admission import Admission
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.pull_queue import SubscriptionChanged
from broker.core.pulling.readers import Readers, Reading
from broker.model.delivery import MAX_RESPONSE_BYTES, Delivery, DeliveryRequest, delivery_request
from broker.model.errors import FailedPrecondition
from broker.model.journal import Author
from broker.model.names import leaf, project_of
from broker.model.subscription import Subscription
from broker.observability.timing import timed

# An empty response is sent so long before the caller's own deadline: a quarter of the remaining time, and a second
# at most.  Google's emulator responds 0.9 s before a deadline of 3 s.
_AHEAD, _MOST_SECONDS_AHEAD = 0.25, 1.0


class PullService:
    """Subscriber.Pull."""

    def __init__(
        self,
        core: Core,
        long_poll: LongPoll,
        activity: SubscriptionActivity,
        readers: Readers,
        *,
        wait_seconds: float,
    ) -> None:
        """`wait_seconds`: how long a pull waits for its first message before it answers with none."""
        self._resources = core.resources
        self._admission = core.admission
        self._long_poll = long_poll
        self._activity = activity
        self._readers = readers
        self._wait_seconds = wait_seconds

    async def pull(
        self,
        subscription_name: str,
        *,
        max_messages: int,
        return_immediately: bool,
        max_bytes: int = MAX_RESPONSE_BYTES,
        principal: str = "",
        address: str = "",
        seconds_left: float | None = None,
        hung_up: Callable[[], Awaitable[None]],
    ) -> tuple[Subscription, list[Delivery]]:
        """Pulls up to `max_messages` (at most 1,000) under new ack ids; none after the bounded wait.

        `max_bytes`: of their data and attributes; a single message may be larger.  `seconds_left`: until the caller
        accepts no answer any more, if that is known; the wait ends before.  `principal`: who pulls, and `address`
        from where ("": it is not known).  Raises InvalidArgument, NotFound (also when the subscription is deleted
        meanwhile), FailedPrecondition, ResourceExhausted (a quota).
        """
        subscription = await pullable(self._resources, subscription_name)
        request = delivery_request(max_messages, max_bytes)
        if subscription.journal is not None:
            request = replace(request, author=Author(principal, address))
        reading = self._readers.pulls(subscription.subscription_id, principal, address)
        wait_seconds = 0 if return_immediately else self._longest_wait(seconds_left)
        if not self._admission.is_metered:
            return await self._pull(subscription, request, wait_seconds, hung_up, reading)
        request = await self._within_quotas(subscription, principal, request)
        deadline = time.monotonic() + wait_seconds
        if return_immediately:
            counted: AbstractContextManager[None] = nullcontext()
        else:
            counted = await self._admission.connect(project_of(subscription_name))
        with counted:
            left = max(deadline - time.monotonic(), 0)
            subscription, deliveries = await self._pull(subscription, request, left, hung_up, reading)
        handed_out(self._admission, subscription, principal, deliveries)
        return subscription, deliveries

    async def _pull(
        self,
        subscription: Subscription,
        request: DeliveryRequest,
        wait_seconds: float,
        hung_up: Callable[[], Awaitable[None]],
        reading: Reading,
    ) -> tuple[Subscription, list[Delivery]]:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                self._activity.used(subscription.subscription_id)
                wait = max(deadline - time.monotonic(), 0)
                with timed("messages"):
                    deliveries = await self._long_poll.pull(
                        subscription, request, wait_seconds=wait, hung_up=hung_up
                    )
            except SubscriptionChanged:
                self._resources.forget(subscription)
                await asyncio.sleep(0)
                subscription = await pullable(self._resources, subscription.name)
            else:
                self._readers.handed_out(reading, deliveries)
                return subscription, deliveries

    async def _within_quotas(
        self, subscription: Subscription, principal: str, request: DeliveryRequest
    ) -> DeliveryRequest:
        """Count a pull; what it may take of what it wants.  Raises QuotaExceeded."""
        project = project_of(subscription.name)
        gauge = self._admission.subscribing(project, principal)
        now = await self._admission.check(gauge, project)
        gauge.take(now, requests=1)
        return request.within(*gauge.left(now, messages=request.max_messages, size=request.max_bytes))

    def _longest_wait(self, seconds_left: float | None) -> float:
        if seconds_left is None:
            return self._wait_seconds
        return min(self._wait_seconds, seconds_left - min(seconds_left * _AHEAD, _MOST_SECONDS_AHEAD))

    async def release(self, subscription: Subscription, deliveries: list[Delivery]) -> None:
        """Give back what could not be handed to the caller: due at once, the attempt not counted."""
        await self._long_poll.release(subscription, deliveries)


def handed_out(
    admission: Admission, subscription: Subscription, principal: str, deliveries: Sequence[Delivery]
) -> None:
    """Count what a principal gets."""
    messages = [message for delivery in deliveries for message in delivery.messages]
    size = sum(len(message.data) + len(message.attributes) for message in messages)
    gauge = admission.subscribing(project_of(subscription.name), principal)
    gauge.take(admission.ticks(), messages=len(messages), size=size)


async def pullable(resources: ResourceCache, name: str) -> Subscription:
    """The subscription, if it can be pulled.  Raises NotFound, FailedPrecondition."""
    subscription = await resources.subscription(name)
    if subscription.detached:
        raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
    if subscription.is_push:
        raise FailedPrecondition(f"The subscription is a push subscription and cannot be pulled (resource={name}).")
    if subscription.export:
        raise FailedPrecondition(
            f"The subscription has a {subscription.export} and cannot be pulled; this broker exports to no other "
            f"service, its messages wait (resource={name})."
        )
    return subscription
