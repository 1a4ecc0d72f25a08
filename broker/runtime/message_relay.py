"""Messages of applications' transactions into the logs of their topics (J7).

A message whose transaction has committed can no longer be refused to who published it.  What cannot be published
any more (its topic was deleted, or asks for what SQL cannot check) is put aside with the reason, and told.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from broker.domain.deduplication import identities
from broker.domain.delay import due_times
from broker.domain.errors import Aborted, BrokerError, FailedPrecondition, Internal, NotFound, Unavailable
from broker.domain.expiry import times_to_live
from broker.domain.message import NewMessage
from broker.domain.names import leaf, project_of
from broker.domain.priority import levels_of
from broker.domain.publish_limits import check_messages
from broker.domain.timestamps import whole_milliseconds
from broker.domain.topic import Topic
from broker.runtime.core import Core
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.next_due import NextDue
from broker.store.log.appending import Batches, ShardClosed, ShardFrozen
from broker.store.log.messages import EncodedMessages, Identified
from broker.store.log.packing import Packing
from broker.store.log.partitions import with_partitions
from broker.store.log.staged import Appended, Outcome, StagedMessage, append_staged, refuse_staged
from broker.telemetry.log import reason
from broker.telemetry.metrics.families import (
    MESSAGE_SIZES,
    PUBLISHED_BYTES,
    PUBLISHED_MESSAGES,
    RELAY_SECONDS,
    RELAYED,
    REPEATED_MESSAGES,
    STAGED_REFUSED,
)

_TRIES = 3  # while a topic changes under them
_LONGEST_REASON = 500  # characters


class MessageRelay:
    """One for a process."""

    def __init__(self, core: Core, next_due: NextDue) -> None:
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._next_due = next_due
        self._quotas = core.quotas
        self._states = core.states
        self._counters = core.counters
        self._turn = 0

    async def relay(self, found: Sequence[StagedMessage]) -> Outcome:
        """Publish messages of one topic, by their numbers.

        Raises Unavailable, Aborted; what is not published is found again then.
        """
        name, topic_id = found[0].topic, found[0].topic_id
        for _ in range(_TRIES):
            try:
                topic = await self._resources.topic_meant(name, topic_id)
            except NotFound:
                await self._refuse(found, NotFound(f"Topic not found: it was deleted (resource={leaf(name)})."))
                return Outcome.DONE
            if topic.freeze is not None or self._quotas.storage.is_raised:
                return Outcome.KEPT
            if why := _unchecked(topic):
                await self._refuse(found, FailedPrecondition(f"{why} (resource={leaf(name)})."))
                return Outcome.DONE
            try:
                return Outcome.DONE if await self._publish(topic, found) else Outcome.LEFT
            except (ShardClosed, ShardFrozen):
                self._resources.drop(name)  # what was known of it is old
        return Outcome.LEFT

    async def _publish(self, topic: Topic, found: Sequence[StagedMessage]) -> bool:
        """False: others are at it, as below."""
        good = []
        for each in found:
            try:
                _encode(topic, [each.message], self._clock)
            except BrokerError as error:
                await self._refuse([each], error)
            except Exception as error:  # or it would hold up its topic for ever
                await self._refuse([each], Internal(reason(error)))
            else:
                good.append(each)
        return await self._append(topic, good) if good else True

    async def _append(self, topic: Topic, found: Sequence[StagedMessage]) -> bool:
        """All of them; if the database has something against one, that one is found and the others go on."""
        try:
            write = partial(self._append_once, topic, found)
            appended = await with_partitions(self._database, self._clock.now, write)
        except (Unavailable, Aborted):
            raise
        except BrokerError as error:
            if len(found) == 1:
                await self._refuse(found, error)
                return True
            half = len(found) // 2
            return await self._append(topic, found[:half]) and await self._append(topic, found[half:])
        if appended is None:
            return False
        self._tell(topic, found, appended)
        return True

    async def _append_once(self, topic: Topic, found: Sequence[StagedMessage]) -> Appended | None:
        now = whole_milliseconds(self._clock.now())
        async with self._database.hot() as connection:
            return await append_staged(
                connection,
                topic_id=topic.topic_id,
                ns=[each.n for each in found],
                batches=self._batches(topic, found),
                now=now,
            )

    def _batches(self, topic: Topic, found: Sequence[StagedMessage]) -> Batches:
        """Those without a key that are not urgent go to the shards in turn, unless their identity says which one.

        That is where whoever publishes the same over HTTP looks.
        """
        self._turn += 1
        plain = topic.plain_shard_ids
        keyless = plain[self._turn % len(plain)]

        def home(message: NewMessage) -> tuple[int, str]:
            shard_id = topic.shard_for(message)
            if message.ordering_key or shard_id in topic.levels:
                return shard_id, message.ordering_key
            digest = _identity(topic, message)
            return keyless if digest is None else topic.shard_of(digest.hex()), ""

        of_shard: dict[int, list[EncodedMessages]] = {}
        for (shard_id, _), run in groupby((each.message for each in found), home):
            of_shard.setdefault(shard_id, []).append(_encode(topic, list(run), self._clock))
        return of_shard

    def _tell(self, topic: Topic, found: Sequence[StagedMessage], appended: Appended) -> None:
        for shard_id in appended.shard_ids:
            self._wake_ups.published(shard_id)
        if appended.due_at is not None:
            self._next_due.tell(appended.due_at)
        sizes = [each.size for each in found]  # repeats are counted as what they repeat
        if self._quotas.on:
            gauge = self._quotas.publishing(project_of(topic.name), "")
            requests = len({each.xid for each in found})
            gauge.take(self._quotas.ticks(), requests=requests, messages=len(found), size=sum(sizes))
        counts, process, now = self._counters.topic(topic.name), self._counters.process, self._clock.now()
        counts[PUBLISHED_MESSAGES] += len(found) - appended.repeats
        counts[REPEATED_MESSAGES] += appended.repeats
        counts[PUBLISHED_BYTES] += sum(sizes)
        MESSAGE_SIZES.observe_all(counts, sizes)
        process[RELAYED["message"]] += len(found)
        late = [max(int((now - each.staged_at).total_seconds() * 1e6), 0) for each in found]
        RELAY_SECONDS.observe_all(process, late)

    async def _refuse(self, found: Sequence[StagedMessage], error: BrokerError) -> None:
        why = f"{error.code}: {error.message}"[:_LONGEST_REASON]
        async with self._database.hot() as connection:
            ns = [each.n for each in found]
            count = await refuse_staged(connection, ns=ns, reason=why, now=self._clock.now())
        if count:
            self._counters.process[STAGED_REFUSED["message"]] += count
            what = f"messages of transactions cannot be published on {found[0].topic} and are put aside"
            self._states.happens("staged messages", found[0].topic, what, reason(error), level=logging.WARNING)


def _unchecked(topic: Topic) -> str:
    """What the topic asks for that was not so when the message was taken ("": nothing)."""
    if topic.schema_settings is not None:
        return "Topic has a schema, which SQL cannot check"
    return "Topic has transforms, which SQL cannot run" if topic.transforms_messages else ""


def _encode(topic: Topic, messages: Sequence[NewMessage], clock: DatabaseClock) -> EncodedMessages:
    """Messages of one key.  Raises a BrokerError."""
    for message in messages:
        check_messages([message])
    if topic.extensions.priorities is not None:
        levels_of(messages, topic.extensions.priorities)  # which may refuse them
    due_ats = due_times(messages, clock.now()) if topic.extensions.delay else None
    ttls = times_to_live(messages) if topic.extensions.expiry else None
    packing = Packing(messages, messages, (), due_ats, ttls)
    known = topic.extensions.deduplication
    digests = None if known is None else identities(messages, known)
    if known is None or digests is None:
        return packing.pack()
    return replace(packing.pack(), identified=Identified(digests, known.window), some=packing.some)


def _identity(topic: Topic, message: NewMessage) -> bytes | None:
    """By what repeats of it are known."""
    known = topic.extensions.deduplication
    digests = None if known is None else identities([message], known)
    return None if digests is None else digests[0]
