"""Pushing: how it goes, and what failed; extensions (A8, C6)."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from broker.domain.delivery import StoredMessage
from broker.domain.errors import FailedPrecondition
from broker.domain.message import NewMessage
from broker.domain.names import leaf
from broker.domain.page import cut_page
from broker.domain.publish_limits import check_messages
from broker.domain.push_state import (
    PushFailure,
    PushFailurePage,
    PushState,
    PushTest,
)
from broker.domain.subscription import Subscription
from broker.runtime.database_clock import DatabaseClock
from broker.services.subscriptions import existing_subscription
from broker.store.driver.database import Database
from broker.store.resources import push_failures, push_states


class Tester(Protocol):
    """Who sends a message to see what an endpoint answers."""

    async def test(self, subscription: Subscription, message: StoredMessage) -> PushTest:
        """Raises FailedPrecondition, ResourceExhausted."""


class PushService:
    """What an operator of push subscriptions sees and does."""

    def __init__(self, database: Database, clock: DatabaseClock, tester: Tester) -> None:
        self._tester = tester
        self._database = database
        self._clock = clock

    async def get_push_status(self, name: str) -> tuple[Subscription, PushState | None, datetime]:
        """A subscription, what is known of its endpoint (None: nothing yet), and as of when.  Raises NotFound."""
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
            state = await push_states.read_push_state(connection, subscription_id=subscription.subscription_id)
        now = self._clock.now()
        return subscription, state and state.as_of(now), now

    async def list_push_failures(self, name: str, page: PushFailurePage) -> tuple[Sequence[PushFailure], str]:
        """A page of the last failed attempts, newest first, and the token of the next page.  Raises NotFound."""
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
            found = await push_failures.list_push_failures(
                connection, subscription_id=subscription.subscription_id, page=page
            )
        return cut_page(found, page.size, lambda failure: failure.failure_id)

    async def test_push(self, name: str, message: NewMessage) -> PushTest:
        """Send a message to the endpoint, also while it is paused; the log and the deliveries do not know of it.

        Raises NotFound, FailedPrecondition (nothing is pushed), InvalidArgument (no message can be so),
        ResourceExhausted (one is being sent).
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
