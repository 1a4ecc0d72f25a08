"""Counts pushes: requests that are sent, and their outcomes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing.client.http_client import SUCCESS, Answer, Outcome
from broker.core.pushing.endpoint import Endpoint, Flight, Item
from broker.core.pushing.push_history import PushHistory
from broker.core.pushing.request.envelope import PushRequest
from broker.fairness.turn_counts import TurnCounts
from broker.model.message_id import id_of
from broker.model.push_history import LATE, TIMEOUT, UNREACHABLE
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import DELIVERY_LAG, PUSH_LATENCY, PUSH_REQUESTS, SENT

if TYPE_CHECKING:
    from broker.observability.tracing import Tracing

_MICROSECOND = timedelta(microseconds=1)


class PushCounts:
    """The counters of the endpoints of this process."""

    def __init__(self, counters: Counters, history: PushHistory, clock: DatabaseClock) -> None:
        self._counters = counters
        self._history = history
        self._clock = clock
        self.turns = TurnCounts(counters, "push")

    def sent(self, endpoint: Endpoint, items: Sequence[Item], now: datetime) -> None:
        """Counts a request that is sent."""
        counts = self._counters.subscription(endpoint.subscription.name)
        counts[SENT] += len(items)
        if items[0].attempt_number == 1:
            DELIVERY_LAG.observe(counts, max((now - items[0].message.publish_time) // _MICROSECOND, 0))

    def traced(
        self,
        endpoint: Endpoint,
        items: Sequence[Item],
        request: PushRequest,
        post: Callable[[PushRequest], Awaitable[Outcome]],
    ) -> Awaitable[Outcome]:
        """`post` the request, within a span where there are any: the endpoint gets its `traceparent` then."""
        tracing = self._counters.tracing
        return post(request) if tracing is None else _traced(tracing, endpoint, items, request, post)

    def ended(self, endpoint: Endpoint, flight: Flight, outcome: Outcome, now: float) -> None:
        """Counts a request that was answered, or could not be."""
        counts = self._counters.subscription(endpoint.subscription.name)
        counts[PUSH_REQUESTS[_response_class(outcome)]] += 1
        if isinstance(outcome, Answer):
            PUSH_LATENCY.observe(counts, max(int((now - flight.begun_at) * 1e6), 0))
            delivered = outcome.status in SUCCESS
            self._note(endpoint, flight, now, status=str(outcome.status), delivered=delivered)
        else:
            self._note(endpoint, flight, now, status=UNREACHABLE, delivered=False)

    def _note(self, endpoint: Endpoint, flight: Flight, now: float, *, status: str, delivered: bool) -> None:
        last = flight.push_batch.items[-1]
        self._history.attempted(
            endpoint.subscription_id,
            self._clock.now(),
            status=status,
            delivered=delivered,
            seconds=max(now - flight.begun_at, 0.0),
            message_id=id_of(last.name.shard_id, last.message),
        )

    def overdue(self, endpoint: Endpoint, flight: Flight, now: float) -> None:
        """Counts a request without an answer within the ack deadline; its later outcome does not change that."""
        self._counters.subscription(endpoint.subscription.name)[PUSH_REQUESTS["deadline_exceeded"]] += 1
        self._note(endpoint, flight, now, status=TIMEOUT, delivered=False)

    def late(self, endpoint: Endpoint, flight: Flight, now: float) -> None:
        """Notes a request that was accepted after the ack deadline, and has been counted as overdue."""
        self._note(endpoint, flight, now, status=LATE, delivered=True)


def _response_class(outcome: Outcome) -> str:
    if not isinstance(outcome, Answer):
        return "unreachable"
    if outcome.status in SUCCESS:
        return "ack"
    if outcome.status >= 500:
        return "remote_server_5xx"
    return "remote_server_4xx" if outcome.status >= 400 else "invalid"


async def _traced(
    tracing: "Tracing",
    endpoint: Endpoint,
    items: Sequence[Item],
    request: PushRequest,
    post: Callable[[PushRequest], Awaitable[Outcome]],
) -> Outcome:
    messages = [
        (
            (item.name.shard_id, item.name.attempt_id),
            item.ordinal,
            id_of(item.name.shard_id, item.message),
            item.message.attributes,
        )
        for item in items
    ]
    span, own = tracing.pushing(endpoint.subscription.name, messages)
    others = {name: value for name, value in request.headers.items() if name.lower() not in own}
    outcome: Outcome | None = None
    try:
        outcome = await post(replace(request, headers=others | own))
        return outcome
    finally:
        tracing.pushed(span, outcome.status if isinstance(outcome, Answer) else None)
