"""Sends one message to an endpoint on request and returns the answer.  Nothing is claimed, counted or settled."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from broker.access.secrets.secrets import CannotOpen, Secrets
from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing.client.http_client import SUCCESS, Denied, PushClient, Unreachable
from broker.core.pushing.request.digest_envelope import DigestItem
from broker.core.pushing.request.envelope import Envelope, PushRequest
from broker.core.pushing.request.oidc_token import TokenSigner
from broker.core.pushing.sender import explain, token_of
from broker.fairness.resource_turns import LONGEST_SECONDS
from broker.model.delivery import StoredMessage
from broker.model.errors import FailedPrecondition, ResourceExhausted
from broker.model.names import leaf
from broker.model.push_state import PushTest
from broker.model.subscription import Subscription

MAX_TESTS = 20  # at a time in a process; one of a subscription
_MAX_SECONDS = LONGEST_SECONDS - 5.0  # or the ack deadline, if that is less: before the call itself is cut off
_SHARD_ID = 0  # no message has this shard


class PushTester:
    """The tester of one process."""

    def __init__(
        self,
        client: PushClient,
        clock: DatabaseClock,
        signer: TokenSigner,
        secrets: Secrets,
        *,
        why_not: Callable[[Subscription], str | None],
    ) -> None:
        """`why_not(subscription)`: why nothing may be pushed for it; None: it may."""
        self._client = client
        self._clock = clock
        self._signer = signer
        self._secrets = secrets
        self._why_not = why_not
        self._running: set[int] = set()  # subscriptions

    async def test(self, subscription: Subscription, message: StoredMessage) -> PushTest:
        """Send a message as its pushes are sent, whatever is paused.

        Raises FailedPrecondition (its requests cannot be signed), ResourceExhausted (too many tests at a time).
        """
        subscription_id = subscription.subscription_id
        if subscription_id in self._running or len(self._running) >= MAX_TESTS:
            raise ResourceExhausted(
                f"A test of {leaf(subscription.name)} or {MAX_TESTS} others are running; try again in a while."
            )
        try:
            envelope = Envelope(subscription, self._secrets)
        except CannotOpen as error:
            raise FailedPrecondition(f"The request cannot be signed: {error}") from None
        self._running.add(subscription_id)
        try:
            return await self._send(subscription, self._request(subscription, envelope, message))
        finally:
            self._running.remove(subscription_id)

    def _request(self, subscription: Subscription, envelope: Envelope, message: StoredMessage) -> PushRequest:
        now = self._clock.now()
        token = token_of(subscription, self._signer, now)
        if subscription.extensions.push.digest is not None:
            return envelope.digest([DigestItem(message, _SHARD_ID, 1)], now=now, token=token)
        return envelope.request(message, shard_id=_SHARD_ID, attempt_number=1, now=now, token=token)

    async def _send(self, subscription: Subscription, request: PushRequest) -> PushTest:
        loop = asyncio.get_running_loop()
        began, most = loop.time(), min(subscription.ack_deadline_seconds, _MAX_SECONDS)
        status, detail = None, f"no answer within {most:g} seconds"
        if subscription.ack_deadline_seconds > most:
            detail += f"; pushes wait for the ack deadline, {subscription.ack_deadline_seconds} seconds"
        if why := self._why_not(subscription):
            detail = why
        else:
            try:
                async with asyncio.timeout(most):
                    outcome = await self._client.post(request)
            except TimeoutError:
                pass
            else:
                token = token_of(subscription, self._signer, self._clock.now())
                if isinstance(outcome, Denied):
                    outcome = Unreachable(outcome.reason)
                status, detail = explain(subscription, outcome, token)
        latency = timedelta(seconds=loop.time() - began)
        return PushTest(subscription.push_config.endpoint, status in SUCCESS, status, latency, detail)
