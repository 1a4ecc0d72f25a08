"""Implements StreamingPull: delivers messages as they come, until the stream ends (A7)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from broker.core.context.admission import CountedConnection
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.pulling.flow_control import FlowControl
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.outstanding import Outstanding
from broker.core.pulling.pull_queue import PullTerms, SubscriptionChanged
from broker.core.pulling.pull_service import handed_out, pullable
from broker.core.pulling.readers import Readers, Reading
from broker.model.ack_id import attempt_name
from broker.model.delivery import MAX_GRPC_RESPONSE_BYTES, MAX_MESSAGES_PER_ATTEMPT, Delivery, DeliveryRequest
from broker.model.errors import Aborted, NotFound, Unavailable
from broker.model.journal import NOBODY, Author
from broker.model.names import leaf, project_of
from broker.model.subscription import Subscription
from broker.observability.metrics.families import OPEN_STREAMS

WAIT_SECONDS = 60.0  # for the next message; then the stream asks again
PATIENCE_SECONDS = 30.0  # with an unavailable database; then the client may connect to another broker
_PAUSE_SECONDS = 1.0
_QUOTA_SECONDS = 0.5  # the longest sleep because of a quota, which may be raised meanwhile


class StreamingPullService:
    """Subscriber.StreamingPull, and the parts that each stream uses."""

    def __init__(
        self,
        core: Core,
        long_poll: LongPoll,
        outstanding: Outstanding,
        activity: SubscriptionActivity,
        readers: Readers,
    ) -> None:
        self.resources = core.resources
        self.admission = core.admission
        self.tasks = core.tasks
        self.counters = core.counters
        self.long_poll = long_poll
        self.outstanding = outstanding
        self.activity = activity
        self.readers = readers

    async def open(
        self,
        subscription_name: str,
        flow_control: FlowControl,
        *,
        ack_deadline: timedelta,
        client_id: str,
        principal: str = "",
        address: str = "",
    ) -> "MessageStream":
        """Begin to receive, as a `principal`, at an `address` ("": it is not known); the caller closes what is
        returned.

        Raises NotFound, FailedPrecondition, ResourceExhausted (a quota of requests or connections).
        """
        subscription = await pullable(self.resources, subscription_name)
        project = project_of(subscription.name)
        if self.admission.is_metered:
            gauge = self.admission.subscribing(project, principal)
            gauge.take(await self.admission.check(gauge, project, requests_alone=True), requests=1)
        connection = await self.admission.connect(project)
        reading = self.readers.opens(
            subscription.subscription_id, client_id=client_id, principal=principal, address=address
        )
        return MessageStream(
            self, subscription, flow_control, ack_deadline=ack_deadline, reading=reading, connection=connection
        )


class MessageStream:
    """The messages that one client receives."""

    def __init__(
        self,
        parts: StreamingPullService,
        subscription: Subscription,
        flow_control: FlowControl,
        *,
        ack_deadline: timedelta,
        reading: Reading,
        connection: CountedConnection,
    ) -> None:
        self.subscription = subscription
        self._connection = connection
        self._reading = reading
        self._parts = parts
        self._window = parts.outstanding.open(subscription.subscription_id, reading.client_id, flow_control)
        self._terms = PullTerms(ack_deadline, self._window.owner)
        self._counts = parts.counters.subscription(subscription.name)
        self._counts[OPEN_STREAMS] += 1

    async def receive(self) -> list[Delivery]:
        """The next messages, as soon as there are any and the flow control has room for them.

        Raises NotFound and FailedPrecondition once the subscription is gone or cannot be pulled any more,
        Unavailable (or Aborted) if the broker stops or cannot serve.
        """
        loop = asyncio.get_running_loop()
        patient_until: float | None = None
        while True:
            try:
                deliveries = await self._receive_once()
                patient_until = None
            except SubscriptionChanged:
                self._parts.resources.forget(self.subscription)
                await asyncio.sleep(0)
                continue
            except (Unavailable, Aborted):
                patient_until = patient_until or loop.time() + PATIENCE_SECONDS
                if self._parts.long_poll.is_stopping or loop.time() > patient_until:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if deliveries:
                if self._parts.admission.is_metered:
                    handed_out(self._parts.admission, self.subscription, self._reading.principal, deliveries)
                self._parts.outstanding.handed_out(self._window, deliveries)
                self._parts.readers.handed_out(self._reading, deliveries)
                return deliveries

    async def _receive_once(self) -> list[Delivery]:
        if self._parts.long_poll.is_stopping:
            raise Unavailable("The broker stops.")
        await self._read_subscription()
        available = self._window.available(MAX_MESSAGES_PER_ATTEMPT)
        if available <= 0:
            if not await self._window.wait_for_change():
                await self._parts.outstanding.check(self._window)
            return []
        size = self._window.bytes_left(MAX_GRPC_RESPONSE_BYTES)
        if self._parts.admission.is_metered:
            available, size = await self._within_quotas(available, size)
            if not available:
                return []
        return await self._parts.long_poll.pull(
            self.subscription,
            DeliveryRequest(max_messages=available, max_bytes=size, evenly=True, author=self.author),
            wait_seconds=WAIT_SECONDS,
            terms=self._terms,
        )

    @property
    def acking_author(self) -> Author:
        """The author that the record of deliveries names."""
        reading = self._reading
        return Author(reading.principal, f"StreamingPull client {reading.client_id or reading.address}")

    @property
    def author(self) -> Author:
        """The author that the journal names."""
        if self.subscription.journal is None:
            return NOBODY
        return Author(self._reading.principal, self._reading.client_id)

    async def _within_quotas(self, available: int, size: int) -> tuple[int, int]:
        """Returns how many messages and bytes the quotas allow now.

        After a wait it returns none: a stream is slowed, not ended.
        """
        admission = self._parts.admission
        gauge = admission.subscribing(project_of(self.subscription.name), self._reading.principal)
        now = admission.ticks()
        if seconds := gauge.wait(now):
            await asyncio.sleep(min(seconds, _QUOTA_SECONDS))
            return 0, 0
        return gauge.left(now, messages=available, size=size)

    async def _read_subscription(self) -> None:
        subscription = await pullable(self._parts.resources, self.subscription.name)
        if subscription.subscription_id != self.subscription.subscription_id:  # deleted and created again since
            raise NotFound(f"Subscription does not exist (resource={leaf(subscription.name)}).")
        self.subscription = subscription
        self.touch()

    def set_ack_deadline(self, ack_deadline: timedelta) -> None:
        """Sets the ack deadline of messages that are delivered from now on."""
        self._terms.ack_deadline = ack_deadline

    def touch(self) -> None:
        """Records that the client is connected, so that the subscription is in use."""
        self._parts.activity.used(self.subscription.subscription_id)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Release what could not be handed to the client: due at once, the attempt not counted."""
        subscription_id = self.subscription.subscription_id
        names = [attempt_name(subscription_id, delivery) for delivery in deliveries]
        self._parts.outstanding.remove([{name: range(name.count) for name in names}])
        release = self._parts.long_poll.release(self.subscription, deliveries)
        self._parts.tasks.start(release, name=f"release for {self.subscription.name}")

    def close(self) -> None:
        """Closes the stream of a client that is gone.

        Its messages are outstanding until they are settled or due.
        """
        window, outstanding, key_owners = self._window, self._parts.outstanding, self._parts.long_poll.key_owners
        self._connection.close()
        if self._counts[OPEN_STREAMS]:  # otherwise the subscription is not counted any more
            self._counts[OPEN_STREAMS] -= 1
        outstanding.close(window)
        self._parts.readers.closes(self._reading)
        if window.subscription_id not in outstanding.subscriptions():
            key_owners.forget(window.subscription_id)
        elif not window.client_id:  # a client that has a name may come back
            key_owners.forget(window.subscription_id, window.owner)
