"""Reports on pushes: the data of `:pushFailures` and `:pushStatus`, and log lines about endpoints."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus

from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing.client.http_client import SUCCESS
from broker.core.pushing.endpoint import Endpoint, Flight, Item
from broker.core.pushing.endpoint_incidents import EndpointIncidents
from broker.core.pushing.health.endpoint_health import SLOW_LATENCY, EndpointHealth
from broker.core.pushing.health.failing_watch import Failed
from broker.core.pushing.health.fault import MessagePause
from broker.core.pushing.known_origins import KnownOrigins
from broker.core.pushing.push_history import PushHistory
from broker.core.pushing.push_log import PushLog
from broker.model.message_id import id_of
from broker.model.push_history import BreakerChange
from broker.model.push_state import WAIT_REPORTED_EVERY, LateAnswers, PushFailure, PushState

_LONG_SECONDS = SLOW_LATENCY  # a request that is outstanding for longer is reported


class EndpointReports:
    """The reports on the endpoints of this process."""

    def __init__(
        self,
        log: PushLog,
        incidents: EndpointIncidents,
        clock: DatabaseClock,
        origins: KnownOrigins,
        *,
        history: PushHistory,
    ) -> None:
        self._log = log
        self._history = history
        self._incidents = incidents
        self._clock = clock
        self._origins = origins

    def failed(
        self,
        endpoint: Endpoint,
        flight: Flight,
        now: float,
        items: list[Item],
        pause: MessagePause,
        *,
        status: int | None,
        detail: str,
    ) -> None:
        """Records a request that was not accepted, or of a digest the failed `items`, which wait for `pause`.

        `status`: None without an answer.
        """
        clock_now = self._clock.now()
        for item in items:
            self._log.failed(
                PushFailure(
                    subscription_id=endpoint.subscription_id,
                    failed_at=clock_now,
                    message_id=message_id_of(item),
                    delivery_attempt=item.attempt_number,
                    endpoint=endpoint.subscription.push_config.endpoint,
                    status=status,
                    latency=timedelta(seconds=now - flight.begun_at),
                    detail=detail,
                )
            )
        gave_up = endpoint.failing.failed(
            [Failed(message_id_of(item), _retry_at(endpoint, item, pause, clock_now)) for item in items],
            began=clock_now - timedelta(seconds=now - flight.begun_at),
            now=clock_now,
            status=status,
            reason=detail if status is None or status in SUCCESS else _phrase(status),
        )
        self._incidents.messages_given_up(endpoint, gave_up)
        self._report_due(endpoint, clock_now)
        self.report(endpoint)

    def succeeded(self, endpoint: Endpoint, items: Sequence[Item], *, had_failed: bool = False) -> None:
        """Records an accepted request, or of a digest the accepted `items`.

        `had_failed`: the endpoint's health has changed by it.
        """
        if endpoint.late_answers is not None:
            endpoint.late_answers, had_failed = None, True
        self._accepted(endpoint, items, had_failed=had_failed)

    def _accepted(self, endpoint: Endpoint, items: Sequence[Item], *, had_failed: bool = False) -> None:
        if not items:
            return
        run = endpoint.failing.run
        delivered = endpoint.failing.succeeded(map(message_id_of, items), self._clock.now())
        if run is not None and run.is_reported:
            self._incidents.recovered(endpoint)
        self._incidents.messages_delivered(endpoint, delivered)
        if had_failed or run is not None or delivered:
            self.report(endpoint)

    def late(self, endpoint: Endpoint, flight: Flight, now: float) -> None:
        """Records a request that was accepted after its ack deadline, and was counted as failed by then."""
        clock_now, latency = self._clock.now(), timedelta(seconds=now - flight.begun_at)
        before = endpoint.late_answers
        endpoint.late_answers = LateAnswers(
            since=clock_now if before is None else before.since,
            last_at=clock_now,
            requests=1 if before is None else before.requests + 1,
            latency=latency,
        )
        self._accepted(endpoint, flight.push_batch.items, had_failed=True)

    def report_failing(self, endpoints: Iterable[Endpoint]) -> None:
        """Report endpoints that have failed for long enough by now, whether or not anything is sent to them."""
        now = self._clock.now()
        for endpoint in endpoints:
            if endpoint.failing.is_due(now):
                self._report_due(endpoint, now)
                self.report(endpoint)

    def forget_gone(self, endpoints: Iterable[Endpoint]) -> None:
        """Messages that were reported as failing and are no longer tried do not fail any more."""
        now = self._clock.now()
        for endpoint in endpoints:
            if endpoint.failing.failing_messages:
                gone = endpoint.failing.forget_gone(now, _held_ids(endpoint))
                if gone:
                    self._incidents.messages_gone(endpoint, gone)
                    self.report(endpoint)

    def end_idle(self, endpoints: Iterable[Endpoint]) -> None:
        """Ends the failures of endpoints for which nothing is left to send."""
        now, loop_now = self._clock.now(), asyncio.get_running_loop().time()
        for endpoint in endpoints:
            if endpoint.failing.run is None:
                continue
            was_reported = endpoint.failing.run.is_reported
            is_idle = not endpoint.flights and not endpoint.buffer and endpoint.wants(loop_now) > 0
            is_idle = is_idle and endpoint.claims_fail_since is None
            if endpoint.failing.ends_idle(now, is_idle=is_idle):
                options = endpoint.subscription.extensions.push
                # It is not known whether the endpoint works again, so it starts with one request.
                endpoint.health = EndpointHealth(options, now=loop_now, failures_before=1)
                if was_reported:
                    self._incidents.nothing_left(endpoint)
                self.report(endpoint)

    def taken_over(self, endpoint: Endpoint) -> None:
        """Logs known failures of an endpoint that this process delivers to from now on."""
        self._log_failures(endpoint, self._clock.now())

    def _report_due(self, endpoint: Endpoint, now: datetime) -> None:
        if endpoint.failing.is_due(now):
            endpoint.failing.report()
        self._log_failures(endpoint, now)

    def _log_failures(self, endpoint: Endpoint, now: datetime) -> None:
        run = endpoint.failing.run
        if run is not None and run.is_reported:
            self._incidents.failing(endpoint, run, self._next_attempt_at(endpoint, now), lasted=now - run.since)
        for message in endpoint.failing.failing_messages:
            self._incidents.message_failing(endpoint, message, lasted=now - message.since)

    def _next_attempt_at(self, endpoint: Endpoint, now: datetime) -> datetime | None:
        """A time to come before which neither the endpoint nor a message that it failed to take is tried."""
        times = [self._opens_at(endpoint, now), endpoint.failing.retry_at]
        return max((time for time in times if time is not None and time > now), default=None)

    def _opens_at(self, endpoint: Endpoint, clock_now: datetime) -> datetime | None:
        now = asyncio.get_running_loop().time()
        opens_at = endpoint.health.opens_at(now)
        return None if opens_at is None else clock_now + timedelta(seconds=max(opens_at - now, 0))

    def report_waiting(self, endpoints: Iterable[Endpoint]) -> None:
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
            again = has_no_slot and now - endpoint.reported_at >= WAIT_REPORTED_EVERY.total_seconds()
            if waiting != endpoint.reported_waiting or has_no_slot != endpoint.reported_no_slot or again:
                endpoint.reported_waiting = waiting
                self._report_slots(endpoint, has_no_slot, now)
                self.report(endpoint)

    def _report_slots(self, endpoint: Endpoint, has_no_slot: bool, now: float) -> None:
        if has_no_slot != endpoint.reported_no_slot:
            endpoint.reported_no_slot = has_no_slot
            if endpoint.waits_since is not None and has_no_slot:
                self._incidents.waits_for_slots(endpoint, now - endpoint.waits_since)
            else:
                self._incidents.has_slots(endpoint)

    def report(self, endpoint: Endpoint) -> None:
        """Write down the state of an endpoint that has changed; that of a removed one belongs to its successor."""
        if endpoint.removed:
            return
        health = endpoint.health
        now = asyncio.get_running_loop().time()
        clock_now = self._clock.now()
        endpoint.reported_at = now
        is_open = self._opens_at(endpoint, clock_now) is None
        waits = endpoint.waits_since if endpoint.reported_no_slot and is_open else None
        if health.breaker != endpoint.reported_breaker:
            endpoint.reported_breaker = health.breaker
            self._incidents.breaker_changed(endpoint)
            self._note_breaker(endpoint, clock_now)
        self._log.changed(
            PushState(
                subscription_id=endpoint.subscription_id,
                breaker=health.breaker,
                changed_at=clock_now,
                consecutive_failures=health.consecutive_failures,
                window=min(health.window, health.outstanding) if endpoint.reported_no_slot else health.window,
                outstanding_requests=health.outstanding,
                retry_at=None if waits is not None else self._next_attempt_at(endpoint, clock_now),
                waits_since=None if waits is None else clock_now - timedelta(seconds=now - waits),
                endpoint=endpoint.subscription.push_config.endpoint,
                failures=endpoint.failing.run,
                failing_messages=endpoint.failing.failing_messages,
                late_answers=endpoint.late_answers,
            )
        )

    def _note_breaker(self, endpoint: Endpoint, now: datetime) -> None:
        run = endpoint.failing.run
        self._history.breaker_changed(
            BreakerChange(
                subscription_id=endpoint.subscription_id,
                changed_at=now,
                state=endpoint.health.breaker,
                consecutive_failures=endpoint.health.consecutive_failures,
                status=None if run is None else run.status,
                reason="" if run is None else run.reason,
            )
        )


def message_id_of(item: Item) -> str:
    """The id that subscribers see."""
    return id_of(item.name.shard_id, item.message)


def _held_ids(endpoint: Endpoint) -> set[str]:
    push_batches = [*endpoint.buffer, *(flight.push_batch for flight in endpoint.flights)]
    return {message_id_of(item) for push_batch in push_batches for item in push_batch.items}


def _retry_at(endpoint: Endpoint, item: Item, pause: MessagePause, now: datetime) -> datetime | None:
    """Returns when a message whose push has failed is due again; None: it becomes a dead letter."""
    subscription = endpoint.subscription
    policy, backoff = subscription.dead_letter_policy, pause.policy(subscription.retry_policy)
    if policy is not None and item.attempt_number >= policy.max_delivery_attempts:
        return None
    asked_for = now + timedelta(seconds=pause.seconds)
    return asked_for if backoff is None else asked_for + backoff.delay(item.attempt_number)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
