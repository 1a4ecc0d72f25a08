"""What is told of pushes: what `:pushFailures` and `:pushStatus` show, and what the log says of endpoints."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from broker.domain.message_id import id_of
from broker.domain.push_state import WAIT_TOLD_EVERY, PushFailure, PushState
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.push_log import PushLog
from broker.workers.push.endpoint import Endpoint, Flight, Item
from broker.workers.push.endpoint_health import SLOW_LATENCY
from broker.workers.push.endpoint_news import EndpointNews
from broker.workers.push.known_origins import KnownOrigins

_LONG_SECONDS = SLOW_LATENCY  # a request that is out for longer is worth telling of


class EndpointReports:
    """Of the endpoints of this process."""

    def __init__(self, log: PushLog, news: EndpointNews, clock: DatabaseClock, origins: KnownOrigins) -> None:
        self._log = log
        self._news = news
        self._clock = clock
        self._origins = origins

    def failed(
        self, endpoint: Endpoint, flight: Flight, now: float, items: list[Item], status: int | None, detail: str
    ) -> None:
        """A request was not taken (`status`: None without an answer), or of a digest these."""
        for item in items:
            self._log.failed(
                PushFailure(
                    subscription_id=endpoint.subscription_id,
                    failed_at=self._clock.now(),
                    message_id=message_id_of(item),
                    delivery_attempt=item.attempt_number,
                    endpoint=endpoint.subscription.push_config.endpoint,
                    status=status,
                    latency=timedelta(seconds=now - flight.begun_at),
                    detail=detail,
                )
            )
        self.tell(endpoint)

    def tell_of_waiting(self, endpoints: Iterable[Endpoint]) -> None:
        """Write down which endpoints have had a request for long: that is neither a success nor a failure yet; and
        which wait for slots."""
        now = asyncio.get_running_loop().time()
        for endpoint in endpoints:
            oldest = next(iter(endpoint.flights), None)
            waits = oldest is not None and now - oldest.begun_at > _LONG_SECONDS
            waiting = endpoint.health.outstanding if waits else 0
            if waits:
                self._origins.slow(endpoint.project, endpoint.origin, now)
            has_no_slot = endpoint.waits_since is not None and now - endpoint.waits_since > _LONG_SECONDS
            again = has_no_slot and now - endpoint.told_at >= WAIT_TOLD_EVERY.total_seconds()
            if waiting != endpoint.told_waiting or has_no_slot != endpoint.told_no_slot or again:
                endpoint.told_waiting = waiting
                self._tell_of_slots(endpoint, has_no_slot, now)
                self.tell(endpoint)

    def _tell_of_slots(self, endpoint: Endpoint, has_no_slot: bool, now: float) -> None:
        if has_no_slot != endpoint.told_no_slot:
            endpoint.told_no_slot = has_no_slot
            if endpoint.waits_since is not None and has_no_slot:
                self._news.waits_for_slots(endpoint, now - endpoint.waits_since)
            else:
                self._news.has_slots(endpoint)

    def tell(self, endpoint: Endpoint) -> None:
        """The endpoint does otherwise than it did."""
        health = endpoint.health
        now = asyncio.get_running_loop().time()
        opens_at = health.opens_at(now)
        clock_now = self._clock.now()
        endpoint.told_at = now
        waits = endpoint.waits_since if endpoint.told_no_slot and opens_at is None else None
        if health.breaker != endpoint.told_breaker:
            endpoint.told_breaker = health.breaker
            self._news.breaker_changed(endpoint)
        self._log.changed(
            PushState(
                subscription_id=endpoint.subscription_id,
                breaker=health.breaker,
                changed_at=clock_now,
                consecutive_failures=health.consecutive_failures,
                window=min(health.window, health.outstanding) if endpoint.told_no_slot else health.window,
                outstanding_requests=health.outstanding,
                retry_at=None if opens_at is None else clock_now + timedelta(seconds=max(opens_at - now, 0)),
                waits_since=None if waits is None else clock_now - timedelta(seconds=now - waits),
            )
        )


def message_id_of(item: Item) -> str:
    """The id that subscribers see."""
    return id_of(item.name.shard_id, item.message)
