"""Sends claimed messages, each request independently, and settles them by the outcome.

buffered ──available──► out ──success──► acknowledged
    │               ├──anything else──► nacked
    │               └──no answer within the ack deadline──► nacked, and acknowledged by a late success
    └──the endpoint is given up, or denied, or it took too long──► released: due at once, the attempt not counted

An endpoint that is gone (its subscription was deleted, or is pushed to another endpoint) has no slots.  Its
outstanding requests have LEAVING_SECONDS to succeed, and their messages are released then.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing.client.http_client import SUCCESS, Answer, Denied, Outcome, PushClient, Unreachable
from broker.core.pushing.endpoint import Endpoint, Flight, Item, PushBatch, Slot
from broker.core.pushing.endpoint_reports import EndpointReports, message_id_of
from broker.core.pushing.health.endpoint_health import SLOW_LATENCY
from broker.core.pushing.health.fault import REJECTED_BACKOFF, MessagePause, fault_of
from broker.core.pushing.known_origins import KnownOrigins
from broker.core.pushing.push_counts import PushCounts
from broker.core.pushing.request.digest_envelope import DigestItem, failed_message_ids
from broker.core.pushing.request.envelope import PushRequest
from broker.core.pushing.request.oidc_token import TokenSigner
from broker.core.pushing.settlement import Settlement
from broker.core.pushing.slots import PushSlots
from broker.core.pushing.turns import Turns
from broker.model.dead_letter import PUSH_DIGEST, PUSH_TIMEOUT, push_answered
from broker.model.push_config import query_of
from broker.model.push_state import MAX_EXCERPT
from broker.model.subscription import Subscription

# The ack deadline of a claim exceeds the timeout of a request by the time for which claimed messages may wait.
MAX_BUFFERED_SECONDS = 2.0
DEADLINE_MARGIN_SECONDS = 4.0
_LATE_DEADLINES = 3  # a call stays open for so many ack deadlines in total, at most 600 s
_MAX_CALL_SECONDS = 600.0
# A deadline that is noticed so late means that this process was suspended: there may be answers that are not read
# yet.
_STOOD_STILL_SECONDS = 0.5
_READING_SECONDS = 0.1
_MAX_LATE_CALLS = 32  # of an endpoint
_MAX_LATE_CALLS_OF_ALL = 1_000
# Short, so that a change of the endpoint causes few duplicates, and an endpoint that hangs delays nothing for long.
LEAVING_SECONDS = 2.0
_MAX_LEAVING = 1_000  # of a process
_PAUSE_WITH_BUFFER_SECONDS = 1.0  # claimed messages wait for an endpoint that may be tried again this soon


class PushSender:
    """The requests of this process."""

    def __init__(
        self,
        client: PushClient,
        clock: DatabaseClock,
        settlement: Settlement,
        reports: EndpointReports,
        signer: TokenSigner,
        origins: KnownOrigins,
        counts: PushCounts,
        *,
        ended: Callable[[Endpoint], None],
        gone: Callable[[Endpoint], None],
        denied: Callable[[Endpoint, str], None],
        why_not: Callable[[Subscription], str | None],
    ) -> None:
        """`ended(endpoint)`: a request has, there may be room.  `gone(endpoint)`: it wants no more pushes (410).
        `denied(endpoint, why)`: nothing may be pushed to it.  `why_not(subscription)`: nor for any endpoint.
        """
        self._client = client
        self._clock = clock
        self._settlement = settlement
        self._reports = reports
        self._signer = signer
        self._origins = origins
        self._counts = counts
        self._ended = ended
        self._gone = gone
        self._denied = denied
        self._why_not = why_not
        self._running: set[asyncio.Task[None]] = set()
        self.slots = PushSlots()
        self._turns = Turns(self.slots, counts.turns, start=self._start_next, freed=self._next)
        self._late: dict[Flight, None] = {}  # overdue and still open, oldest first
        self._leaving: dict[Flight, None] = {}  # to endpoints that are gone, oldest first

    def pump(self, endpoint: Endpoint) -> None:
        """Start as many of the endpoint's requests as may start, soon."""
        if endpoint.closed:
            self.give_back(endpoint)
        elif endpoint.buffer:
            self._turns.ready(endpoint)

    def _start_next(self, endpoint: Endpoint, now: float) -> None:
        if endpoint.suspended or not endpoint.buffer:
            return
        first = endpoint.buffer[0]
        if now - first.claimed_at > MAX_BUFFERED_SECONDS or now > first.due_at:
            self.give_back(endpoint)  # it may be due before the request ends, or has been since the broker stopped
        elif not endpoint.health.available(now):
            self._wait_for_capacity(endpoint, now)
        elif (slot := self._turns.take_slot(endpoint, now)) is not None:
            self._begin(endpoint, endpoint.buffer.popleft(), slot, now)
            if endpoint.buffer:
                self._turns.ready(endpoint)

    def give_back(self, endpoint: Endpoint) -> None:
        """Release what is claimed for an endpoint and not sent."""
        if push_batches := endpoint.take_buffer():
            self._settlement.release(endpoint, (item for push_batch in push_batches for item in push_batch.items))

    def leave(self, endpoint: Endpoint) -> None:
        """Ends the requests to an endpoint that is gone.  They hold no slots any more.

        Their messages are due when they have ended, not before: of an ordering key no other may overtake them.
        """
        loop = asyncio.get_running_loop()
        for flight in [*endpoint.late_flights, *endpoint.flights]:
            assert flight.timer is not None
            assert flight.task is not None
            flight.timer.cancel()
            flight.timer = loop.call_later(LEAVING_SECONDS, flight.task.cancel)
            if not flight.overdue:
                flight.leaving = True
                flight.health.abandoned(flight.attempt, loop.time())
                self._leave(endpoint, flight, loop.time())
                _keep_open(flight, self._leaving, _MAX_LEAVING)

    async def stop(self, grace_seconds: float) -> None:
        """Waits a little for the open requests, then ends them; their messages fall due again."""
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    # --- one request ---------------------------------------------------------------------------------------------

    def _begin(self, endpoint: Endpoint, push_batch: PushBatch, slot: Slot, now: float) -> None:
        health = endpoint.health
        first = push_batch.items[0]
        attempt = health.begin(
            now, messages=len(push_batch.items), message=first.key, is_retry=first.attempt_number > 1
        )
        flight = Flight(push_batch, health, attempt, slot, now)
        endpoint.flights[flight] = None
        loop = asyncio.get_running_loop()
        deadline = endpoint.subscription.ack_deadline_seconds
        flight.timer = loop.call_later(deadline, self._overdue, endpoint, flight)
        if health.breaker == "half_open":
            self._reports.report(endpoint)
        flight.task = loop.create_task(self._fly(endpoint, flight))
        self._running.add(flight.task)
        flight.task.add_done_callback(self._running.discard)

    async def _fly(self, endpoint: Endpoint, flight: Flight) -> None:
        outcome: Outcome | None = (
            None  # if the broker stops, if the call was overdue for too long, or on an internal error
        )
        try:
            if why := self._why_not(endpoint.subscription):
                outcome = Denied(why)
            else:
                clock_now = self._clock.now()
                request = self._request(endpoint, flight.push_batch, clock_now)
                self._counts.sent(endpoint, flight.push_batch.items, clock_now)
                outcome = await self._counts.traced(endpoint, flight.push_batch.items, request, self._client.post)
        finally:
            self._landed(endpoint, flight, outcome)

    def _request(self, endpoint: Endpoint, push_batch: PushBatch, now: datetime) -> PushRequest:
        subscription = endpoint.subscription
        token = token_of(subscription, self._signer, now)
        if subscription.extensions.push.digest is not None:
            return endpoint.envelope.digest(
                [DigestItem(item.message, item.name.shard_id, item.attempt_number) for item in push_batch.items],
                now=now,
                token=token,
            )
        [item] = push_batch.items
        return endpoint.envelope.request(
            item.message,
            shard_id=item.name.shard_id,
            attempt_number=item.attempt_number,
            now=now,
            token=token,
        )

    def _landed(self, endpoint: Endpoint, flight: Flight, outcome: Outcome | None) -> None:
        """Handles the end of a call."""
        assert flight.timer is not None
        flight.timer.cancel()
        now = asyncio.get_running_loop().time()
        self._learn(endpoint, flight, outcome, now)
        if flight.leaving:
            self._left(endpoint, flight, outcome)
            return
        if flight.overdue:
            if isinstance(outcome, Answer) and outcome.status in SUCCESS:
                self._late_success(endpoint, flight, outcome)
            self._late.pop(flight, None)
            endpoint.forget_late(flight)
            return
        self._leave(endpoint, flight, now)
        if outcome is None or isinstance(outcome, Denied):
            flight.health.abandoned(flight.attempt, now)
        if isinstance(outcome, Denied):
            self._settlement.release(endpoint, flight.push_batch.items)
            self._denied(endpoint, outcome.reason)
        elif outcome is not None:
            self._finish(endpoint, flight, outcome, now)
        self._next(endpoint)

    def _learn(self, endpoint: Endpoint, flight: Flight, outcome: Outcome | None, now: float) -> None:
        """Records what concerns all endpoints of the origin."""
        if isinstance(outcome, Denied):
            return
        if isinstance(outcome, Answer):
            self._origins.answered(endpoint.project, endpoint.origin)
            return
        if outcome is not None and not outcome.connected:
            self._origins.failed(endpoint.project, endpoint.origin, now)
        elif outcome is None and now - flight.begun_at > SLOW_LATENCY:
            self._origins.slow(endpoint.project, endpoint.origin, now)

    def _leave(self, endpoint: Endpoint, flight: Flight, now: float) -> None:
        """Ends counting a request as outstanding."""
        endpoint.flights.pop(flight, None)
        endpoint.let_go(flight.push_batch)
        self._turns.give_back(endpoint, flight.slot, now)

    def _next(self, endpoint: Endpoint) -> None:
        self.pump(endpoint)
        self._ended(endpoint)

    # --- what becomes of it --------------------------------------------------------------------------------------

    def _finish(self, endpoint: Endpoint, flight: Flight, outcome: Answer | Unreachable, now: float) -> None:
        items = flight.push_batch.items
        self._counts.ended(endpoint, flight, outcome, now)
        if isinstance(outcome, Answer) and outcome.status in SUCCESS:
            had_failed = flight.health.consecutive_failures > 0
            flight.health.succeeded(flight.attempt, now)
            if endpoint.subscription.extensions.push.digest is not None:
                items = self._refuse_some(endpoint, flight, outcome, now)
            self._settlement.acknowledge(endpoint, items, _answer(endpoint, flight, outcome, now))
            self._reports.succeeded(endpoint, items, had_failed=had_failed)
            return
        token = token_of(endpoint.subscription, self._signer, self._clock.now())
        status, detail = explain(endpoint.subscription, outcome, token)
        retry_after = outcome.retry_after if isinstance(outcome, Answer) else None
        pause = flight.health.failed(flight.attempt, now, fault_of(status), retry_after=retry_after)
        self._settlement.nack(endpoint, items, push_answered(status), pause, response=detail)
        self._reports.failed(endpoint, flight, now, items, pause, status=status, detail=detail)
        if flight.health.failed_messages.are_gone:
            self._gone(endpoint)

    def _refuse_some(self, endpoint: Endpoint, flight: Flight, answer: Answer, now: float) -> list[Item]:
        """Nack what a digest's answer says has failed; returns the rest."""
        failed = failed_message_ids(answer.body)
        refused = [item for item in flight.push_batch.items if message_id_of(item) in failed] if failed else []
        if not refused:
            return flight.push_batch.items
        pause = MessagePause(REJECTED_BACKOFF)
        self._settlement.nack(endpoint, refused, PUSH_DIGEST, pause)
        detail = "the answer to the digest names it as failed"
        self._reports.failed(endpoint, flight, now, refused, pause, status=answer.status, detail=detail)
        return [item for item in flight.push_batch.items if item not in refused]

    def _overdue(self, endpoint: Endpoint, flight: Flight) -> None:
        """Records a failure of a request that has no answer within the ack deadline.

        The call stays open for a while.
        """
        loop = asyncio.get_running_loop()
        assert flight.task is not None
        deadline = endpoint.subscription.ack_deadline_seconds
        if loop.time() - flight.begun_at > deadline + _STOOD_STILL_SECONDS and not flight.excused:
            flight.excused = True
            flight.timer = loop.call_later(_READING_SECONDS, self._overdue, endpoint, flight)
            return
        flight.overdue = True
        self._counts.overdue(endpoint, flight, loop.time())
        self._leave(endpoint, flight, loop.time())
        endpoint.late |= {item.key: item for item in flight.push_batch.items}
        left = min(_LATE_DEADLINES * deadline, _MAX_CALL_SECONDS) - deadline
        flight.timer = loop.call_later(max(left, 0), flight.task.cancel)
        for late_calls, most in ((endpoint.late_flights, _MAX_LATE_CALLS), (self._late, _MAX_LATE_CALLS_OF_ALL)):
            _keep_open(flight, late_calls, most)
        pause = flight.health.failed(flight.attempt, loop.time(), fault_of(None))
        self._settlement.nack(endpoint, flight.push_batch.items, PUSH_TIMEOUT, pause)
        if not pause.counts_for_message:  # otherwise only this message hangs
            self._origins.failed(endpoint.project, endpoint.origin, loop.time())
        why = f"no answer within {deadline} seconds"
        self._reports.failed(endpoint, flight, loop.time(), flight.push_batch.items, pause, status=None, detail=why)
        self._next(endpoint)

    def _left(self, endpoint: Endpoint, flight: Flight, outcome: Outcome | None) -> None:
        """Handles the end of a call to an endpoint that is gone."""
        self._leaving.pop(flight, None)
        if not (isinstance(outcome, Answer) and outcome.status in SUCCESS):
            self._settlement.release(endpoint, flight.push_batch.items)
            return
        now = asyncio.get_running_loop().time()
        self._counts.ended(endpoint, flight, outcome, now)
        delivered = flight.push_batch.items
        if endpoint.subscription.extensions.push.digest is not None:
            delivered = self._refuse_some(endpoint, flight, outcome, now)
        self._settlement.acknowledge(endpoint, delivered, _answer(endpoint, flight, outcome, now))

    def _late_success(self, endpoint: Endpoint, flight: Flight, outcome: Answer) -> None:
        """Acknowledge the messages wherever they are by now: waiting, or out again."""
        settled = [endpoint.late.pop(item.key) for item in flight.push_batch.items if item.key in endpoint.late]
        for item in settled:
            endpoint.drop(item)
        now = asyncio.get_running_loop().time()
        self._settlement.acknowledge(
            endpoint, [*settled, *flight.push_batch.items], _answer(endpoint, flight, outcome, now)
        )
        self._counts.late(endpoint, flight, now)
        self._reports.late(endpoint, flight, now)

    def _wait_for_capacity(self, endpoint: Endpoint, now: float) -> None:
        """Sets an alarm for the time at which there is room without an answer.

        Claimed messages are released if that takes long.
        """
        opens_at = endpoint.health.opens_at(now)
        if opens_at is not None:
            if opens_at - now > _PAUSE_WITH_BUFFER_SECONDS:
                self.give_back(endpoint)
            elif not now < endpoint.alarm_at <= opens_at:  # otherwise an alarm is set that is early enough
                endpoint.alarm_at = opens_at
                self._ended(endpoint)


def _answer(endpoint: Endpoint, flight: Flight, answer: Answer, now: float) -> str:
    """Describes an answer for the journal: "204 in 12 ms".

    The time has two digits, so that the answers of a flush are often alike; the record of deliveries has the time
    by itself.
    """
    if endpoint.subscription.journal is None:
        return str(answer.status)
    return f"{answer.status} in {float(f'{(now - flight.begun_at) * 1000:.2g}'):g} ms"


def _keep_open(flight: Flight, calls: dict[Flight, None], most: int) -> None:
    """Keeps a call open that has no slot.  The oldest of such calls is ended if there are too many."""
    calls[flight] = None
    if len(calls) > most:
        oldest = next(iter(calls))
        del calls[oldest]
        if oldest.task is not None:
            oldest.task.cancel()


def token_of(subscription: Subscription, signer: TokenSigner, now: datetime) -> str | None:
    """The token that requests for a subscription carry, if they do."""
    config = subscription.push_config
    if config.oidc_token is None:
        return None
    audience = config.oidc_token.audience or config.endpoint
    return signer.token(config.oidc_token.service_account_email, audience, now=now)


def explain(subscription: Subscription, outcome: Answer | Unreachable, token: str | None) -> tuple[int | None, str]:
    """Returns the status (None: there was no answer) and the detail, without secrets that the endpoint repeats."""
    status = outcome.status if isinstance(outcome, Answer) else None
    detail = outcome.body.decode("utf-8", "replace") if isinstance(outcome, Answer) else outcome.reason
    # Some endpoints repeat the request in their answers.
    for secret in filter(None, (query_of(subscription.push_config.endpoint), token)):
        detail = detail.replace(secret, "…")
    return status, detail[:MAX_EXCERPT]
