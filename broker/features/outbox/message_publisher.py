"""Moves messages of applications' transactions into the logs of their topics (J7).

Once a transaction has committed, its messages can no longer be refused to the application.  A message that cannot
be published any more (its topic was deleted, or has a property that SQL cannot check) is moved to the refused
messages, and the reason is logged.
"""

import logging
from collections.abc import Sequence
from functools import partial

from broker.core.context.core import Core
from broker.core.log.appending import Answers, ShardClosed, ShardFrozen
from broker.core.log.partitions import with_partitions
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation, Prepared, batches_of, first_due_at, published_of
from broker.core.publishing.publishing_rules import OUTBOX
from broker.features.outbox.rows import OutboxMessage, Outcome, append_outbox_messages, refuse_outbox_messages
from broker.model.errors import Aborted, BrokerError, FailedPrecondition, Held, NotFound, Unavailable
from broker.model.names import leaf
from broker.model.topic import Topic
from broker.observability.log import reason
from broker.observability.metrics.families import (
    MESSAGE_SIZES,
    OUTBOX_DONE,
    OUTBOX_REFUSED,
    OUTBOX_SECONDS,
    PUBLISHED_BYTES,
    PUBLISHED_MESSAGES,
    REPEATED_MESSAGES,
)

_TRIES = 3  # while the topic changes
_LONGEST_REASON = 500  # characters


class OutboxPublisher:
    """Publishes messages of the outbox.  A process has one."""

    def __init__(self, core: Core, preparation: Preparation, next_due: NextDue) -> None:
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._next_due = next_due
        self._preparation = preparation
        self._states = core.states
        self._counters = core.counters

    async def relay(self, found: Sequence[OutboxMessage]) -> Outcome:
        """Publish messages of the outbox for one topic, in the order of their numbers.

        Raises Unavailable, Aborted; messages that are not published are found again later.
        """
        name, topic_id = found[0].topic, found[0].topic_id
        for _ in range(_TRIES):
            try:
                topic = await self._resources.topic_meant(name, topic_id)
            except NotFound:
                await self._refuse(found, NotFound(f"Topic not found: it was deleted (resource={leaf(name)})."))
                return Outcome.DONE
            try:
                await self._preparation.check_open(topic, OUTBOX)
            except Held:
                return Outcome.KEPT
            except FailedPrecondition as error:
                await self._refuse(found, error)
                return Outcome.DONE
            try:
                return Outcome.DONE if await self._publish(topic, found) else Outcome.LEFT
            except (ShardClosed, ShardFrozen):
                self._resources.drop(name)  # the cached topic is out of date
        return Outcome.LEFT

    async def _publish(self, topic: Topic, found: Sequence[OutboxMessage]) -> bool:
        """Publish the messages that are valid, and put the others aside.

        Returns False if another process is publishing them.
        """
        messages = [each.message for each in found]
        prepared, good, refused = await self._preparation.prepare_some(topic, messages, OUTBOX)
        for index, error in refused.items():
            await self._refuse([found[index]], error)
        if prepared is None:
            return True
        await self._preparation.admit(prepared, OUTBOX)
        return await self._append(prepared, [found[index] for index in good])

    async def _append(self, prepared: Prepared, found: Sequence[OutboxMessage]) -> bool:
        """Append the messages; if the database refuses one, find it by halves, and append the others.

        Returns False if another process is publishing them.
        """
        try:
            write = partial(self._append_once, prepared, found)
            answers = await with_partitions(self._database, self._clock.now, write)
        except (Unavailable, Aborted):
            raise
        except BrokerError as error:
            if len(found) == 1:
                await self._refuse(found, error)
                return True
            half = len(found) // 2
            return await self._publish(prepared.topic, found[:half]) and await self._publish(
                prepared.topic, found[half:]
            )
        if answers is None:
            return False
        self._appended(prepared, found, answers)
        return True

    async def _append_once(self, prepared: Prepared, found: Sequence[OutboxMessage]) -> Answers | None:
        async with self._database.hot() as connection:
            return await append_outbox_messages(
                connection,
                topic_id=prepared.topic.topic_id,
                ns=[each.n for each in found],
                batches=batches_of([prepared]),
                now=self._clock.now(),
            )

    def _appended(self, prepared: Prepared, found: Sequence[OutboxMessage], answers: Answers) -> None:
        """Wake subscriptions, charge the quotas, and count the messages."""
        for shard_id in {part.shard_id for part in prepared.parts if part.batch.count}:
            self._wake_ups.published(shard_id)
        if (due_at := first_due_at(prepared.parts)) is not None:
            self._next_due.notify(due_at)
        [published] = published_of([prepared], answers)
        repeats = len(published.repeats)
        sizes = [each.size for each in found]  # with those of repeats
        self._preparation.charge([prepared], OUTBOX, requests=len({each.xid for each in found}))
        counts, process, now = self._counters.topic(prepared.topic.name), self._counters.process, self._clock.now()
        counts[PUBLISHED_MESSAGES] += len(found) - repeats
        counts[REPEATED_MESSAGES] += repeats
        counts[PUBLISHED_BYTES] += sum(sizes)
        MESSAGE_SIZES.observe_all(counts, sizes)
        process[OUTBOX_DONE["message"]] += len(found)
        delays = [max(int((now - each.written_at).total_seconds() * 1e6), 0) for each in found]
        OUTBOX_SECONDS.observe_all(process, delays)

    async def _refuse(self, found: Sequence[OutboxMessage], error: BrokerError) -> None:
        """Put messages aside."""
        why = f"{error.code}: {error.message}"[:_LONGEST_REASON]
        async with self._database.hot() as connection:
            ns = [each.n for each in found]
            count = await refuse_outbox_messages(connection, ns=ns, reason=why, now=self._clock.now())
        if count:
            self._counters.process[OUTBOX_REFUSED["message"]] += count
            what = f"messages of transactions cannot be published on {found[0].topic} and are put aside"
            self._states.happens("staged messages", found[0].topic, what, reason(error), level=logging.WARNING)
