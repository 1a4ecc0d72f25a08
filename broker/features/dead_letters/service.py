"""Lists and groups the dead letters of a subscription; an extension (G2)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple, replace
from functools import partial

from broker.core.filtering.changes import compiled
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.dead_letters.dead_letter_list import (
    MAX_DEAD_LETTERS,
    DeadLetterList,
    DeadLetterPage,
    Group,
    Trait,
    grouped,
)
from broker.features.dead_letters.rows import AskedDeadLetters, list_dead_letter_topics, list_dead_letters
from broker.model.names import project_of
from broker.model.page import invalid_page_token, page_token

HungUp = Callable[[], Awaitable[None]]


class DeadLetterService:
    """Lists and groups dead letters.  It changes, locks and delivers nothing."""

    def __init__(
        self, database: Database, replica_reads: ReplicaReads, clock: DatabaseClock, turns: ResourceTurns
    ) -> None:
        """Limits concurrent reads by `turns`, which all expensive reads share."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns

    async def list_dead_letters(
        self, subscription_name: str, page: DeadLetterPage, *, hung_up: HungUp | None = None
    ) -> DeadLetterList:
        """Returns a page of the messages that a subscription dead-lettered and that can be acted on.

        A call that still waits for its turn when its caller disconnects (`hung_up()` completes) is dropped.  Raises
        InvalidArgument (the filter; a page token of another subscription), NotFound, Unavailable (too many such
        calls).
        """
        return await self._list(subscription_name, page, bodies=True, hung_up=hung_up)

    async def group_dead_letters(
        self, subscription_name: str, page: DeadLetterPage, trait: Trait, *, hung_up: HungUp | None = None
    ) -> tuple[Sequence[Group], DeadLetterList]:
        """Returns groups of the first MAX_DEAD_LETTERS messages, the largest first.  Raises as
        `list_dead_letters`.
        """
        page = replace(page, size=MAX_DEAD_LETTERS, start=None)
        found = await self._list(subscription_name, page, bodies=False, hung_up=hung_up)
        return grouped(found.found, trait), found

    async def dead_letter_topics(self, subscription_name: str, *, hung_up: HungUp | None = None) -> Sequence[str]:
        """Returns the names of the topics that have dead letters of a subscription, or that will get them.

        Raises NotFound, Unavailable (too many such calls).
        """
        async with self._turns.of(project_of(subscription_name), hung_up=hung_up):
            async with self._database.transaction() as connection:
                subscription = await existing_subscription(connection, subscription_name)
            query = partial(
                list_dead_letter_topics,
                subscription_id=subscription.subscription_id,
                shard_ids=subscription.shard_ids,
            )
            found = await self._replica_reads.read(query)
        policy = subscription.dead_letter_policy
        return found if policy is None else [*found, policy.dead_letter_topic]

    async def _list(
        self, subscription_name: str, page: DeadLetterPage, *, bodies: bool, hung_up: HungUp | None
    ) -> DeadLetterList:
        paths = compiled(page.filter)
        async with self._turns.of(project_of(subscription_name), hung_up=hung_up):
            async with self._database.transaction() as connection:
                subscription = await existing_subscription(connection, subscription_name)
            if page.start is not None and page.start.shard_id not in subscription.shard_ids:
                raise invalid_page_token(page_token(*astuple(page.start)))
            asked = AskedDeadLetters(
                subscription_id=subscription.subscription_id,
                shard_ids=subscription.shard_ids,
                filter_path=paths.filter_path,
                body_path=paths.body_path,
                page=page,
                now=self._clock.now(),
                bodies=bodies,
            )
            return await self._replica_reads.read(partial(list_dead_letters, asked=asked))
