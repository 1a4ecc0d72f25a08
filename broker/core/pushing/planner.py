"""Requests claims for each endpoint, and buffers the claimed messages: the first of the two stages of push.

The scheduler (core/claiming/claim_scheduler.py) claims when there may be messages and the endpoint has capacity;
the sender does the rest.  The end of a request may free capacity that was missing before (A8, B2, B5).
"""

import asyncio
from datetime import datetime, timedelta

from broker.core.claiming.claim_scheduler import ClaimScheduler
from broker.core.claiming.consumer import Answer, claim_target
from broker.core.claiming.transaction.request import MAX_BYTES, ClaimTarget
from broker.core.pushing.endpoint import MAX_BYTES_HELD, Endpoint
from broker.core.pushing.endpoint_incidents import EndpointIncidents
from broker.core.pushing.sender import DEADLINE_MARGIN_SECONDS, MAX_BUFFERED_SECONDS, PushSender
from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT, DeliveryRequest
from broker.model.journal import PUSH
from broker.model.subscription import Subscription


class PushPlanner:
    """The endpoints of this process, as consumers of claims."""

    def __init__(self, scheduler: ClaimScheduler, incidents: EndpointIncidents) -> None:
        """`scheduler` claims for pushes alone."""
        self._scheduler = scheduler
        self._incidents = incidents
        self._consumers: dict[Endpoint, _EndpointConsumer] = {}
        self.sender: PushSender  # set when the two are connected

    def add(self, endpoint: Endpoint) -> None:
        """Adds an endpoint that is new, or was changed, and checks all of it."""
        consumer = self._consumers.get(endpoint)
        if consumer is None:
            consumer = self._consumers[endpoint] = _EndpointConsumer(endpoint, self.sender, self._incidents)
        self._scheduler.add(consumer)
        self.sender.pump(endpoint)  # messages that waited while it was being read

    def remove(self, endpoint: Endpoint) -> None:
        """Ends the claims for an endpoint, and releases what was not sent."""
        self._scheduler.remove(self._consumers.pop(endpoint))
        self.sender.give_back(endpoint)

    def ended(self, endpoint: Endpoint) -> None:
        """Claims again after a request has ended, since there may be room now."""
        if endpoint in self._consumers:
            self._scheduler.ready(endpoint.subscription_id)

    def stop(self) -> None:
        """Give back what was not sent."""
        for endpoint in self._consumers:
            endpoint.closed = True
            self.sender.give_back(endpoint)


class _EndpointConsumer:
    """The consumer for one endpoint."""

    def __init__(self, endpoint: Endpoint, sender: PushSender, incidents: EndpointIncidents) -> None:
        self._endpoint = endpoint
        self._sender = sender
        self._incidents = incidents

    @property
    def subscription(self) -> Subscription:
        return self._endpoint.subscription

    @property
    def in_doubt(self) -> bool:
        return self._endpoint.in_doubt(asyncio.get_running_loop().time())

    def wants(self) -> bool:
        return self._endpoint.wants(asyncio.get_running_loop().time()) > 0

    def begin(self, now: datetime, *, due: bool) -> ClaimTarget | None:
        endpoint, subscription = self._endpoint, self._endpoint.subscription
        digest = subscription.extensions.push.digest
        push_batches = endpoint.wants(asyncio.get_running_loop().time())
        if push_batches <= 0:
            return None
        most = push_batches if digest is None else digest.max_messages
        max_bytes = MAX_BYTES_HELD if digest is None else digest.max_bytes
        request = DeliveryRequest(
            max_messages=min(most, MAX_MESSAGES_PER_ATTEMPT), max_bytes=min(max_bytes, MAX_BYTES), author=PUSH
        )
        target = claim_target(
            subscription,
            now,
            requests=(request,),
            ack_deadline=timedelta(seconds=subscription.ack_deadline_seconds + DEADLINE_MARGIN_SECONDS),
            max_run=1,  # one outstanding request of a key at a time
            digest=digest,
            includes_due=due,
            wants_next=True,
        )
        endpoint.asked += _push_batches(target)
        return target

    def accept(self, answer: Answer) -> None:
        endpoint, target = self._endpoint, answer.target
        endpoint.asked -= _push_batches(target)
        [deliveries] = answer.claimed.deliveries
        if deliveries:
            # Their ack deadline starts no earlier than the claim; a claim that took long leaves them little time.
            latest = asyncio.get_running_loop().time() - MAX_BUFFERED_SECONDS / 2
            due_at = answer.begun_at + target.ack_deadline.total_seconds()
            endpoint.accept(deliveries, max(answer.begun_at, latest), due_at=due_at)
        self._sender.pump(endpoint)
        self._incidents.claimed(endpoint)

    def fail(self, target: ClaimTarget | None, error: BaseException) -> None:
        if target is not None:
            self._endpoint.asked -= _push_batches(target)
        self._incidents.claim_failed(self._endpoint, error)

    def wakes_at(self, *, held_up: bool) -> float | None:
        return self._endpoint.wakes_at(asyncio.get_running_loop().time(), held_up=held_up)

    def woken(self) -> None:
        self._endpoint.alarm_at = 0.0
        self._sender.pump(self._endpoint)


def _push_batches(target: ClaimTarget) -> int:
    """Returns how many push batches a claim may bring: each message is one, or all are one digest."""
    return target.max_messages if target.digest is None else 1
