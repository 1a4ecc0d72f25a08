"""Checks and packs messages on their way into the log of a topic, by the rules of their entry point.

The rules are data (core/publishing/publishing_rules.py); features carry out those about their properties of topics
(core/publishing/publish_rule.py).  An entry point calls `open_and_prepare`, or its two steps, and `admit`; then it
appends the prepared messages (core/log/appending.py, or the coalescer), and calls `charge`.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, repeat
from math import inf
from typing import NamedTuple

from broker.core.context.core import Core
from broker.core.log.appending import Answers, Batches
from broker.core.log.message_ids import id_seqs_of
from broker.core.log.messages import Appended, EncodedMessages, Stored, encode_messages
from broker.core.log.packing import Packing, Part
from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule, Rules, check_accepts, check_limits
from broker.core.publishing.shard_choice import ShardChoice
from broker.model.errors import (
    BrokerError,
    FailedPrecondition,
    Held,
    Internal,
    NotFound,
    QuotaExceeded,
    ResourceExhausted,
    Unavailable,
)
from broker.model.message import NewMessage
from broker.model.message_id import message_id
from broker.model.names import leaf, project_of
from broker.model.publish_limits import check_messages, check_request_size
from broker.model.publish_property import PublishProperty
from broker.model.topic import Topic
from broker.observability.log import reason

_APPLIES, _IGNORED = Rule.APPLIES, Rule.IGNORED


@dataclass(slots=True)
class Prepared:
    """Messages that are ready to be appended.

    `dropped`: the number of messages that a transform has dropped; `reservations`: what `take_capacity` does.
    """

    topic: Topic
    parts: Sequence[Part]
    count: int
    dropped: int = 0
    reservations: Sequence[Callable[[], Awaitable[None]]] = ()

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
    """Returns all parts by shard, in their order."""
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
        *,
        is_busy: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`is_busy`: whether publishes to a shard are queued or being stored, so that another shares a commit."""
        self._resources = core.resources
        self._admission, self._storage = core.admission, core.storage
        self._apply: dict[PublishProperty, Callable[[Draft, Rule], Awaitable[None]]] = {}  # see `add_rules`
        self._choice = ShardChoice(is_busy)

    def add_rules(self, rules: Iterable[PublishRule]) -> None:
        """Apply the publish rules of a feature, from before the first publish on."""
        self._apply.update((rule.of, rule.apply) for rule in rules)

    @property
    def supported(self) -> Collection[PublishProperty]:
        """The properties of topics that have a publish rule."""
        return self._apply.keys()

    async def check_capacity(self, topic_name: str, rules: Rules, principal: str = "") -> Topic | None:
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
        if topic.publish_properties:
            self._properties(topic, rules)
        return topic

    async def check_open(self, topic: Topic, rules: Rules) -> None:
        """Raise FailedPrecondition, StorageLow or Unavailable if a topic is closed; Held if messages wait."""
        await self.check_storage(rules, project_of(topic.name))
        check_accepts(topic, rules)
        self._properties(topic, rules)

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
        count = len(messages)
        if topic.publish_properties or (rules.one_key is _IGNORED and count > 1):
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
        draft = Draft(
            topic=topic, sent=messages, rules=rules, seconds=schema_seconds, packing=Packing(messages, messages)
        )
        for each, rule in self._properties(topic, rules):
            await self._apply[each](draft, rule)
        parts = self._parts(draft)
        stored = draft.packing.stored
        dropped = len(messages) - len(stored)
        prepared = Prepared(topic, parts, len(messages), dropped, draft.reservations)
        if rules.request_size is _APPLIES and stored:
            check_request_size(topic.name, stored, prepared.size)
        return prepared

    def _properties(self, topic: Topic, rules: Rules) -> list[tuple[PublishProperty, Rule]]:
        """The properties of a topic that matter at an entry point, and how it treats them.

        Raises FailedPrecondition for one whose feature this broker does not have: its messages would be stored
        unchecked, or otherwise than their publisher expects.
        """
        treated = [(each, getattr(rules, each)) for each in topic.publish_properties]
        found = [(each, rule) for each, rule in treated if rule is not _IGNORED and rule is not Rule.REFUSES]
        for each, _ in found:
            if each not in self._apply:
                raise FailedPrecondition(
                    f"The topic has {each.path}, which this broker does not support, and accepts no messages "
                    f"(resource={leaf(topic.name)})."
                )
        return found

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
            except Exception as error:  # otherwise the message would block all others for ever
                refused[index] = Internal(reason(error))
        good = [index for index in range(len(messages)) if index not in refused]
        if not good:
            return None, [], refused
        return await self.prepare(topic, [messages[index] for index in good], rules), good, refused

    async def admit(self, prepared: Prepared, rules: Rules, principal: str = "") -> None:
        """Take waiting room for messages that are not due yet, and check quotas.  Raises QuotaExceeded; Held."""
        await self.take_capacity(prepared)
        await self.check_quotas(prepared.topic, rules, principal)

    async def take_capacity(self, prepared: Prepared) -> None:
        """Take waiting room for the messages that are not due yet.  Raises QuotaExceeded."""
        for reserve in prepared.reservations:
            await reserve()

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

    def _parts(self, draft: Draft) -> list[Part]:
        """The runs of messages with the same shard and ordering key; the messages of a shard keep their order."""
        shards, packing, rules = self._shards(draft), draft.packing, draft.rules
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
            for _, run in groupby(indexes, lambda index: draft.sent[index].ordering_key)
        ]
        return [Part(shard_id, packing.some(indexes), indexes) for shard_id, indexes in runs]

    def _shards(self, draft: Draft) -> list[int]:
        """The shard of each message: the one that a rule has chosen, else that of its ordering key."""
        keyless: int | None = None
        shards: list[int] = []
        for message, chosen in zip(draft.sent, draft.shards or repeat(None), strict=False):
            if chosen is not None:
                shards.append(chosen)
            elif message.ordering_key:
                shards.append(draft.topic.shard_of(message.ordering_key))
            else:
                if keyless is None:
                    keyless = self._keyless_shard(draft.topic, len(draft.sent), draft.rules)
                shards.append(keyless)
        return shards
