"""Reads the state and history of pushes, and sends test pushes; extensions (A8, C6)."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from broker.core.catalog import push_state_rows as push_states
from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing import push_failure_rows as push_failures
from broker.core.pushing import push_history_rows as push_history
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.database import Database
from broker.model.delivery import StoredMessage
from broker.model.errors import FailedPrecondition
from broker.model.message import NewMessage
from broker.model.names import leaf
from broker.model.page import cut_page
from broker.model.publish_limits import check_messages
from broker.model.push_history import BreakerChange, PushAttemptPage, PushAttempts
from broker.model.push_state import PushFailure, PushFailurePage, PushState, PushTest
from broker.model.subscription import Subscription


class Tester(Protocol):
    """Sends a test message to an endpoint."""

    async def test(self, subscription: Subscription, message: StoredMessage) -> PushTest:
        """Sends the message and returns the answer.  Raises FailedPrecondition, ResourceExhausted."""


class PushService:
    """Serves the operator's view of push subscriptions."""

    def __init__(self, database: Database, clock: DatabaseClock, tester: Tester) -> None:
        self._tester = tester
        self._database = database
        self._clock = clock

    async def get_push_status(self, name: str) -> tuple[Subscription, PushState | None, datetime]:
        """Returns a subscription, the state of its endpoint (None: there is none yet), and the time.  Raises
        NotFound.
        """
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
            state = await push_states.read_push_state(connection, subscription_id=subscription.subscription_id)
        now = self._clock.now()
        return subscription, state and state.as_of(now), now

    async def list_push_failures(self, name: str, page: PushFailurePage) -> tuple[Sequence[PushFailure], str]:
        """Returns a page of failed attempts, newest first, and the token of the next page.  Raises NotFound."""
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
            found = await push_failures.list_push_failures(
                connection, subscription_id=subscription.subscription_id, page=page
            )
        return cut_page(found, page.size, lambda failure: failure.failure_id)

    async def list_push_attempts(self, name: str, page: PushAttemptPage) -> tuple[Sequence[PushAttempts], str]:
        """Returns a page of counts by minute and status, newest first, and the token of the next page.  Raises
        NotFound.
        """
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
            found = await push_history.list_push_attempts(
                connection, subscription_id=subscription.subscription_id, page=page
            )
        return cut_page(found, page.size, lambda attempts: (attempts.minute, attempts.status))

    async def list_breaker_changes(self, subscription: Subscription) -> Sequence[BreakerChange]:
        """Returns the last changes of the circuit breaker, newest first."""
        async with self._database.transaction() as connection:
            return await push_history.list_breaker_changes(connection, subscription_id=subscription.subscription_id)

    async def test_push(self, name: str, message: NewMessage) -> PushTest:
        """Sends a message to the endpoint, even if pushes are paused.  The message is not stored or tracked.

        Raises NotFound, FailedPrecondition (not a push subscription), InvalidArgument (a message that could not be
        published), ResourceExhausted (another test is running).
        """
        check_messages([message])
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
        if not subscription.is_push:
            raise FailedPrecondition(f"Nothing is pushed for this subscription (resource={leaf(name)}).")
        attributes = json.dumps(message.attributes)
        key = message.ordering_key or None
        return await self._tester.test(
            subscription, StoredMessage(0, self._clock.now(), key, attributes, message.data)
        )
