"""Lists the backlog of a subscription with the states of its messages (F3); an extension."""

from collections.abc import Awaitable, Callable
from dataclasses import astuple
from functools import partial

from broker.core.filtering.changes import compiled
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.inspect.backlog_page import BacklogList, BacklogPage
from broker.features.inspect.backlog_rows import Asked, list_messages
from broker.model.errors import FailedPrecondition
from broker.model.names import leaf, project_of
from broker.model.page import invalid_page_token, page_token

HungUp = Callable[[], Awaitable[None]]


class BacklogMessageService:
    """Lists backlogs.  It changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, turns: ResourceTurns
    ) -> None:
        """Limits concurrent lists by `turns`, which all expensive reads share."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns

    async def list_messages(
        self, subscription_name: str, page: BacklogPage, *, hung_up: HungUp | None = None
    ) -> BacklogList:
        """Returns a page of unacknowledged messages: in each shard first the delivered ones, then the others.

        A call that still waits for its turn when its caller disconnects (`hung_up()` completes) is dropped.  Raises
        InvalidArgument (the filter; a page token of another subscription), NotFound, FailedPrecondition (a detached
        subscription), Unavailable (too many such calls).
        """
        own = compiled(page.filter)
        async with self._turns.of(project_of(subscription_name), hung_up=hung_up):
            async with self._database.transaction() as connection:
                subscription = await existing_subscription(connection, subscription_name)
            if subscription.detached:
                raise FailedPrecondition(f"Subscription is detached (resource={leaf(subscription_name)}).")
            if page.start is not None and page.start.shard_id not in subscription.shard_ids:
                raise invalid_page_token(page_token(*astuple(page.start)))
            now = self._clock.now()
            of_log = compiled(page.filter, subscription)
            asked = Asked(
                subscription_id=subscription.subscription_id,
                shard_ids=subscription.shard_ids,
                ordered=subscription.enable_message_ordering,
                retained_since=now - subscription.retention,
                filter_path=own.filter_path,
                body_path=own.body_path,
                log_path=of_log.filter_path,
                log_body_path=of_log.body_path,
                page=page,
                now=now,
            )
            return await self._replica_reads.read(partial(list_messages, asked=asked))
