"""Checks and packs messages on their way into the log of a topic, by the rules of their entry point.

The rules are data (core/publishing/publishing_rules.py).  An entry point calls `open_and_prepare`, or its two
steps, and `admit`; then it appends the prepared messages (core/log/appending.py, or the coalescer), and calls
`charge`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import inf
from typing import NamedTuple

from broker.core.context.core import Core
from broker.core.log.appending import Answers, Batches
from broker.core.log.message_ids import id_seqs_of
from broker.core.log.messages import Appended, EncodedMessages, Stored, encode_messages
from broker.core.log.packing import Packing, Part
from broker.core.publishing.publishing_rules import (
    Rule,
    Rules,
    check_accepts,
    check_limits,
    without_schema_attributes,
)
from broker.core.publishing.shard_choice import ShardChoice
from broker.features.deduplication.identity import identities
from broker.features.delayed.delay import due_times
from broker.features.delayed.scheduled_room import ScheduledRoom
from broker.features.expiry.expiry import times_to_live
from broker.features.priorities.priority import level_of, levels_of
from broker.features.schemas.schema_checks import SchemaChecks
from broker.features.transforms.topic_transforms import TopicTransforms
from broker.model.errors import BrokerError, Held, Internal, NotFound, QuotaExceeded, ResourceExhausted, Unavailable
from broker.model.message import NewMessage
from broker.model.message_id import message_id
from broker.model.names import project_of
from broker.model.publish_limits import check_messages, check_request_size
from broker.model.topic import Topic
from broker.observability.log import reason

_APPLIES, _IGNORED = Rule.APPLIES, Rule.IGNORED


@dataclass(slots=True)
class Prepared:
    """Messages that are ready to be appended.

    `dropped`: the number of messages that a transform has dropped; `later`: the number that are not due yet.
    """

    topic: Topic
    parts: Sequence[Part]
    count: int
    dropped: int = 0
    later: int = 0

    @property
    def size(self) -> int:
        """The bytes of data and attributes."""
        return sum(part.batch.size for part in self.parts)


class Published(NamedTuple):
    """The ids of messages, in order.

    `repeats`: the indexes of messages that repeat earlier ones: they were not stored, and have the earlier ids.
    """

    ids: list[str]
    repeats: Sequence[int] = ()


def batches_of(prepared: Iterable[Prepared]) -> Batches:
    """All parts by shard, in their order."""
    batches: dict[int, list[EncodedMessages]] = {}
    for each in prepared:
        for part in each.parts:
            batches.setdefault(part.shard_id, []).append(part.batch)
    return batches


def published_of(prepared: Iterable[Prepared], answers: Answers) -> list[Published]:
    """The ids of messages whose `batches_of` were appended."""
    left = {shard_id: iter(of_shard) for shard_id, of_shard in answers.items()}
    return [
        merged(each, [published_part(part, next(left[part.shard_id])) for part in each.parts]) for each in prepared
    ]


def published_part(part: Part, answer: Appended | Stored) -> Published:
    """The ids of the messages of a part."""
    ids = [message_id(part.shard_id, id_seq) for id_seq in id_seqs_of(part.batch, answer)]
    return Published(ids, answer.repeated if isinstance(answer, Stored) else ())


def merged(prepared: Prepared, parts: Sequence[Published]) -> Published:
    """The ids of all messages, given those of each part."""
    ids, repeats = [""] * prepared.count, list[int]()
    for part, published in zip(prepared.parts, parts, strict=True):
        indexes = range(prepared.count) if part.indexes is None else part.indexes
        for index, id_ in zip(indexes, published.ids, strict=True):
            ids[index] = id_
        repeats += [indexes[repeat] for repeat in published.repeats]
    return Published(ids, sorted(repeats))


def first_due_at(parts: Iterable[Part]) -> datetime | None:
    """The earliest due time of the messages that are not due yet, if there are any."""
    scheduled = [part.batch.scheduled for part in parts if part.batch.scheduled is not None]
    return min((due_at for each in scheduled for due_at in each.due_ats), default=None)


class Preparation:
    """Applies the rules of publishing.  A process has one, which all entry points share."""

    def __init__(
        self,
        core: Core,
        schemas: SchemaChecks,
        transforms: TopicTransforms,
        room: ScheduledRoom,
        *,
        is_busy: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`is_busy`: whether publishes to a shard are queued or being stored, so that another shares a commit."""
        self._clock = core.clock
        self._resources = core.resources
        self._admission, self._storage = core.admission, core.storage
        self._schemas = schemas
        self._transforms = transforms
        self._room = room
        self._choice = ShardChoice(is_busy)

    async def check_room(self, topic_name: str, rules: Rules, principal: str = "") -> Topic | None:
        """Check what can refuse a call before its messages are decoded; return the topic if it is in memory.

        Raises StorageLow, Unavailable, QuotaExceeded.
        """
        if self._storage.is_raised:
            await self.check_storage(rules, project_of(topic_name))
        topic = self._resources.known_topic(topic_name)
        if topic is not None and self._admission.is_metered:
            await self.check_quotas(topic, rules, principal)
        return topic

    async def open_and_prepare(
        self, name: str, messages: Sequence[NewMessage], rules: Rules, *, schema_seconds: float = inf
    ) -> Prepared:
        """Prepare messages for the topic of this name.  Raises as `open_topic` and `prepare`."""
        topic = await self.open_topic(name, rules)
        return await self.prepare(topic, messages, rules, schema_seconds=schema_seconds)

    async def open_topic(self, name: str, rules: Rules) -> Topic:
        """Return the topic of this name if it accepts messages.  Raises NotFound, and as `check_open`."""
        if self._storage.is_raised:
            await self.check_storage(rules, project_of(name))
        topic = await self._resources.topic(name)
        if topic.freeze is not None or Rule.REFUSES in (rules.schema, rules.transforms):
            check_accepts(topic, rules)
        return topic

    async def check_open(self, topic: Topic, rules: Rules) -> None:
        """Raise FailedPrecondition, StorageLow or Unavailable if a topic is closed; Held if messages wait."""
        await self.check_storage(rules, project_of(topic.name))
        check_accepts(topic, rules)

    async def check_storage(self, rules: Rules, project: str) -> None:
        """Raise StorageLow or Unavailable if the installation has no room; Held if messages wait for it.

        A `project` that keeps calling is refused no faster than by its quotas.
        """
        if not self._storage.is_raised or rules.storage is _IGNORED:
            return
        error = self._storage.refusal()
        if error is None:
            return
        if rules.storage is Rule.WAITS:
            raise Held(error.message)
        if rules.by_call:
            await self._storage.pace(project)
        raise error

    async def prepare(
        self,
        topic: Topic,
        messages: Sequence[NewMessage],
        rules: Rules,
        *,
        schema_seconds: float = inf,
    ) -> Prepared:
        """Check messages by the rules of their entry point, and pack them.  Only a request may have no message.

        Raises InvalidArgument or FailedPrecondition for a message that breaks a rule, NotFound (the schema is
        deleted), ResourceExhausted (transforms or schema took too long, `schema_seconds`), Unavailable.
        """
        if rules.message_limits is rules.reserved_attributes is rules.request_count is rules.one_key is _APPLIES:
            check_messages(messages)
        else:
            check_limits(messages, rules)
        own, count = topic.extensions, len(messages)
        is_plain = not (topic.transforms or own.delay or own.expiry or own.deduplication or own.priorities)
        if not is_plain or topic.schema_settings is not None or (rules.one_key is _IGNORED and count > 1):
            return await self._prepare_whole(topic, messages, rules, schema_seconds)
        if (key := messages[0].ordering_key) or rules.spread is _IGNORED:
            shard_id = topic.shard_of(key)
        else:
            shard_id = self._choice.choose(topic.topic_id, topic.plain_shard_ids, count)
        batch = encode_messages(messages)
        if rules.request_size is _APPLIES:
            check_request_size(topic.name, messages, batch.size)
        return Prepared(topic, [Part(shard_id, batch)], count)

    async def _prepare_whole(
        self, topic: Topic, messages: Sequence[NewMessage], rules: Rules, schema_seconds: float
    ) -> Prepared:
        """Prepare messages of any ordering keys for a topic with any properties."""
        own, known = topic.extensions, topic.extensions.deduplication
        digests = _identities(topic, messages, rules)
        made, stored, shared = await self._transformed(topic, messages, rules, schema_seconds)
        due_ats = due_times(made, self._clock.now()) if own.delay and rules.delay is _APPLIES else None
        packing = Packing(
            made,
            stored,
            shared,
            due_ats=due_ats,
            ttls=times_to_live(made) if own.expiry and rules.expiry is _APPLIES else None,
            digests=digests,
            window=timedelta(0) if known is None else known.window,
        )
        parts = self._parts(topic, messages, packing, _levels(topic, made, rules), rules)
        later = 0 if due_ats is None else len(due_ats) - due_ats.count(None)
        prepared = Prepared(topic, parts, len(messages), len(messages) - len(stored), later)
        if rules.request_size is _APPLIES and stored:
            check_request_size(topic.name, stored, prepared.size)
        return prepared

    async def _transformed(
        self, topic: Topic, messages: Sequence[NewMessage], rules: Rules, schema_seconds: float
    ) -> tuple[Sequence[NewMessage | None], Sequence[NewMessage], Sequence[str]]:
        """Transform messages, and check the result: limits and schema hold for what is stored.

        Returns the transformed messages (None: dropped), those that are not dropped, and for each of these the
        attributes that the topic's schema adds.
        """
        made: Sequence[NewMessage | None] = messages
        stored = messages
        if topic.transforms and topic.transforms_messages and rules.transforms is _APPLIES:
            made = await self._transforms.publish(topic, messages)
            stored = [message for message in made if message is not None]
            if stored and rules.message_limits is _APPLIES:
                check_messages(stored)
        if topic.schema_settings is None or rules.schema is not _APPLIES or not stored:
            return made, stored, ()
        if rules.reserved_attributes is _IGNORED:
            made = stored = without_schema_attributes(stored)
        project = project_of(topic.name)
        shared = await self._schemas.check(project, topic.schema_settings, stored, seconds=schema_seconds)
        return made, stored, shared

    async def prepare_some(
        self, topic: Topic, messages: Sequence[NewMessage], rules: Rules
    ) -> tuple[Prepared | None, list[int], dict[int, BrokerError]]:
        """Prepare the messages that break no rule.  Returns their indexes too, and the error of each of the others.

        Raises the errors that do not concern a single message: Unavailable, NotFound, ResourceExhausted.
        """
        if not messages:
            return None, [], {}
        try:
            return await self.prepare(topic, messages, rules), list(range(len(messages))), {}
        except (NotFound, ResourceExhausted, Unavailable):
            raise
        except Exception:
            refused: dict[int, BrokerError] = {}
        for index, message in enumerate(messages):
            try:
                await self.prepare(topic, [message], rules)
            except (NotFound, ResourceExhausted, Unavailable):
                raise
            except BrokerError as error:
                refused[index] = error
            except Exception as error:  # or the message would block all others for ever
                refused[index] = Internal(reason(error))
        good = [index for index in range(len(messages)) if index not in refused]
        if not good:
            return None, [], refused
        return await self.prepare(topic, [messages[index] for index in good], rules), good, refused

    async def admit(self, prepared: Prepared, rules: Rules, principal: str = "") -> None:
        """Take waiting room for messages that are not due yet, and check quotas.  Raises QuotaExceeded; Held."""
        await self.take_room(prepared, rules)
        await self.check_quotas(prepared.topic, rules, principal)

    async def take_room(self, prepared: Prepared, rules: Rules) -> None:
        """Take waiting room for the messages that are not due yet.  Raises QuotaExceeded."""
        if prepared.later and rules.waiting_room is _APPLIES:
            await self._room.take(prepared.topic, prepared.later)

    async def check_quotas(self, topic: Topic, rules: Rules, principal: str = "") -> None:
        """Check the publish rates and retained bytes of the topic's project, and of the `principal` ("": unknown).

        Raises QuotaExceeded; Held if messages wait.
        """
        if not self._admission.is_metered or rules.quotas is _IGNORED:
            return
        project = project_of(topic.name)
        gauge = self._admission.publishing(project, principal)
        if rules.by_call:
            await self._admission.check(gauge, project)
            return
        try:
            gauge.check(self._admission.ticks())
        except QuotaExceeded as error:
            if rules.quotas is Rule.WAITS:
                raise Held(error.message) from error
            raise

    def charge(self, prepared: Sequence[Prepared], rules: Rules, principal: str = "", *, requests: int = 1) -> None:
        """Count messages, with repeats, towards the publish rates of the topic's project and of the principal."""
        if self._admission.is_metered and rules.charge is _APPLIES and prepared:
            gauge = self._admission.publishing(project_of(prepared[0].topic.name), principal)
            messages, size = sum(each.count for each in prepared), sum(each.size for each in prepared)
            gauge.take(self._admission.ticks(), requests=requests, messages=messages, size=size)

    def _keyless_shard(self, topic: Topic, count: int, rules: Rules) -> int:
        if rules.spread is _APPLIES:
            return self._choice.choose(topic.topic_id, topic.plain_shard_ids, count)
        return topic.shard_of("")

    def _parts(
        self,
        topic: Topic,
        messages: Sequence[NewMessage],
        packing: Packing,
        levels: Sequence[int | None] | None,
        rules: Rules,
    ) -> list[Part]:
        """The runs of messages with the same shard and ordering key; the messages of a shard keep their order."""
        shards = self._shards(topic, messages, packing.digests, levels, rules)
        of_shard: dict[int, list[int]] = {}
        for index, shard_id in enumerate(shards):
            of_shard.setdefault(shard_id, []).append(index)
        if rules.one_key is _APPLIES:
            whole = packing.pack()  # its errors name messages by their index in the request
            if len(of_shard) == 1:
                return [Part(shards[0], whole)]
        runs = [
            (shard_id, list(run))
            for shard_id, indexes in of_shard.items()
            for _, run in groupby(indexes, lambda index: messages[index].ordering_key)
        ]
        return [Part(shard_id, packing.some(indexes), indexes) for shard_id, indexes in runs]

    def _shards(
        self,
        topic: Topic,
        messages: Sequence[NewMessage],
        digests: Sequence[bytes | None] | None,
        levels: Sequence[int | None] | None,
        rules: Rules,
    ) -> list[int]:
        """The shard of each message: that of its priority level, else of its ordering key, else of its identity.

        Repeats that are published at the same time so meet in one shard.
        """
        keyless: int | None = None
        has_several = len(topic.plain_shard_ids) > 1
        shards: list[int] = []
        for index, message in enumerate(messages):
            shard_id = None if levels is None else topic.urgent_shard(levels[index])
            if shard_id is None and message.ordering_key:
                shard_id = topic.shard_of(message.ordering_key)
            elif (
                shard_id is None and has_several and digests is not None and (digest := digests[index]) is not None
            ):
                shard_id = topic.shard_of(digest.hex())
            elif shard_id is None:
                if keyless is None:
                    keyless = self._keyless_shard(topic, len(messages), rules)
                shard_id = keyless
            shards.append(shard_id)
        return shards


def _levels(topic: Topic, messages: Sequence[NewMessage | None], rules: Rules) -> Sequence[int | None] | None:
    """The priority level of each message; None: all have the lowest one."""
    known = topic.extensions.priorities
    if known is None or rules.priority is _IGNORED:
        return None
    if rules.priority is _APPLIES:
        return levels_of(messages, known)
    found = [None if each is None else level_of(each.attributes, each.ordering_key, known) for each in messages]
    return None if found.count(None) == len(found) else found


def _identities(topic: Topic, messages: Sequence[NewMessage], rules: Rules) -> list[bytes | None] | None:
    """The identity of each message as it was sent, by which repeats are found; None: no message has one."""
    known = topic.extensions.deduplication
    if known is None or rules.deduplication is _IGNORED:
        return None
    digests = identities(messages, known)
    return digests if rules.deduplication is _APPLIES else None
