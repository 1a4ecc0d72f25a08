"""Retracts messages of a topic, and publishes others in their place; extensions (J6)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from broker.core.backlog.outcome import Outcome
from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.log.appending import ShardClosed, ShardFrozen, append_to_shards
from broker.core.log.message_ids import id_seqs_of
from broker.core.log.packing import Part
from broker.core.log.partitions import with_partitions
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation, Prepared, first_due_at
from broker.core.publishing.publishing_rules import PUBLISH_SECONDS, REPLACE
from broker.core.resources.permitted import AskPermission, is_permitted
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_transactions import hot_transaction, in_hot_transaction
from broker.features.retraction.removal import Asked, Done, retract
from broker.features.retraction.retraction import Retracted, check_retraction, of_another_topic
from broker.features.retraction.rows import Id, name_replacement
from broker.model.errors import Aborted, FailedPrecondition, NotFound, Unavailable
from broker.model.journal import Author
from broker.model.message import NewMessage
from broker.model.message_id import message_id, parse_message_id
from broker.model.names import project_of
from broker.model.preview import UNGUARDED, Preview, Safeguards
from broker.model.publish_limits import named
from broker.model.topic import Topic
from broker.observability.log import fields_of
from broker.observability.metrics.families import RETRACTED

_TRIES = 5  # of a call that met somebody else


class _TopicChanged(Exception):
    """Raised if the topic, as this process knew it, accepts no messages any more.  Nothing has changed."""


class RetractionService:
    """The retractions of messages.  They are complete when the call returns."""

    def __init__(self, core: Core, preparation: Preparation, next_due: NextDue) -> None:
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._preparation = preparation
        self._next_due = next_due
        self._states = core.states
        self._counters = core.counters

    async def retract(
        self,
        topic_name: str,
        message_ids: Sequence[str],
        *,
        by: str = "",
        may_see: AskPermission,
        safeguards: Safeguards = UNGUARDED,
    ) -> Retracted:
        """Retracts messages.  Once it has returned, none of them is delivered any more.

        `may_see` raises PermissionDenied for subscriptions and topics whose names the caller may not see.  Raises
        InvalidArgument (the ids), NotFound (no topic), Aborted (concurrent changes of the same messages again and
        again; the count is not the expected one); and Undone (a preview, if the caller asked only for that).
        """
        given = await self._checked(topic_name, message_ids, "messageIds[{}]", may_see)
        done = await self._retract(list(dict.fromkeys(given.values())), by, safeguards)
        self._report(topic_name, done, by)
        answer = await _answer(given, done, may_see)
        unknown = dict.fromkeys(message_ids, Outcome.UNKNOWN)
        return replace(answer, outcomes={**unknown, **answer.outcomes})

    async def replace(
        self, topic_name: str, old_id: str, message: NewMessage, *, by: str = "", may_see: AskPermission
    ) -> Retracted:
        """Retracts a message and publishes another in its place: both or neither, and once however often it is
        called.

        Raises, in addition to the errors of a publish, FailedPrecondition (the message was retracted without being
        replaced, or is not retained: nothing is published), NotFound (no topic, no such message).
        """
        given = await self._checked(topic_name, [old_id], "messageId", may_see)
        id_ = given.get(old_id)
        if id_ is None:
            raise _unknown(topic_name, old_id)
        for left in reversed(range(_TRIES)):
            with named("message"):
                prepared = await self._prepare(topic_name, message, by)
            try:
                replace_once = partial(self._replace, id_, prepared, by)
                done, new = await with_partitions(self._database, self._clock.now, replace_once)
                break
            except (_TopicChanged, Aborted) as error:
                self._resources.drop(topic_name)
                if not left and isinstance(error, Aborted):
                    raise
        else:
            raise Unavailable("The topic changes just now; nothing was retracted, and nothing published.")
        self._report(topic_name, done, by)
        if done.outcomes[id_] is Outcome.RETRACTED:
            self._wake_ups.published(prepared.parts[0].shard_id)
            if (due_at := first_due_at(prepared.parts)) is not None:
                self._next_due.notify(due_at)
        answer = await _answer(given, done, may_see)
        return replace(answer, replacement=message_id(*new))

    async def _prepare(self, topic_name: str, message: NewMessage, by: str) -> Prepared:
        prepared = await self._preparation.open_and_prepare(
            topic_name, [message], REPLACE, schema_seconds=PUBLISH_SECONDS
        )
        await self._preparation.admit(prepared, REPLACE, by)
        self._preparation.charge([prepared], REPLACE, by)
        return prepared

    async def _checked(
        self, topic_name: str, message_ids: Sequence[str], at: str, may_see: AskPermission
    ) -> dict[str, Id]:
        """Returns the ids that may belong to the topic.  Raises InvalidArgument, NotFound."""
        check_retraction(message_ids, at)
        given = {text: parse_message_id(text) for text in message_ids}
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=topic_name)
            if topic is None:
                raise topic_not_found(topic_name)
            others = {shard_id for shard_id, _ in given.values()} - {*topic.shard_ids}
            names = await topics.find_topics_of_shards(connection, shard_ids=sorted(others)) if others else {}
        await _check_topic(topic, message_ids, names, at, may_see)
        return {text: id_ for text, id_ in given.items() if id_[0] in topic.shard_ids}

    async def _retract(self, ids: Sequence[Id], by: str, safeguards: Safeguards) -> Done:
        async def act(connection: HotConnection) -> Done:
            asked = self._asked(ids, by)
            done = await retract(connection, asked) if ids else Done({}, {}, {}, ())
            safeguards.check_newest(done.newest, "One of the messages came")
            count = Counter(done.outcomes.values())[Outcome.RETRACTED]
            losses = {"messages": count, "subscriptions": len(done.states)}
            safeguards.settle(Preview(count=count, unit="message", time=asked.now, losses=losses))
            return done

        return await in_hot_transaction(self._database, act)

    async def _replace(self, id_: Id, prepared: Prepared, by: str) -> tuple[Done, Id]:
        """Replaces a message in one transaction.  Returns the result, and the id of the message in its place.

        Raises PartitionMissing, _TopicChanged, Aborted, FailedPrecondition, NotFound.
        """
        [part] = prepared.parts
        async with hot_transaction(self._database) as connection:
            done = await retract(connection, self._asked([id_], by, part.shard_id))
            if done.outcomes[id_] is Outcome.RETRACTED:
                new = part.shard_id, await self._append(connection, part)
                await name_replacement(connection, of=id_, replacement=new)
            else:
                new = _stands_already(prepared.topic.name, id_, done)
        return done, new

    async def _append(self, connection: HotConnection, part: Part) -> int:
        """Publishes the message.  Returns the sequence that its id contains.  Raises _TopicChanged."""
        try:
            answers = await append_to_shards(
                connection, batches={part.shard_id: [part.batch]}, now=self._clock.now()
            )
        except (ShardClosed, ShardFrozen) as error:
            raise _TopicChanged from error
        [answer] = answers[part.shard_id]
        [id_seq] = id_seqs_of(part.batch, answer)
        return id_seq

    def _asked(self, ids: Sequence[Id], by: str, *appends_to: int) -> Asked:
        return Asked(ids=ids, author=Author(principal=by), now=self._clock.now(), appends_to=appends_to)

    def _report(self, topic_name: str, done: Done, by: str) -> None:
        for subscription_id in done.woken:
            self._wake_ups.redeliverable(subscription_id)
        count = Counter(done.outcomes.values())[Outcome.RETRACTED]
        if count:
            self._counters.topic(topic_name)[RETRACTED] += count
            who = f" by {by}" if by else ""
            self._states.report(
                "retractions",
                f"{count:,} messages of {topic_name} are retracted{who}",
                fields=fields_of(topic_name, principal=by, count=count),
            )


async def _check_topic(
    topic: Topic, message_ids: Sequence[str], names: Mapping[int, str], at: str, may_see: AskPermission
) -> None:
    """Raises InvalidArgument for messages of other topics.

    The error names the other topic only if it is of the same project and the caller may see it.
    """
    for index, text in enumerate(message_ids):
        name = names.get(parse_message_id(text)[0])
        if name is not None:
            is_shown = project_of(name) == project_of(topic.name) and await is_permitted(may_see, name)
            raise of_another_topic(at.format(index), text, name if is_shown else "")


def _stands_already(topic_name: str, id_: Id, done: Done) -> Id:
    """Returns the message that an earlier call has published in its place.  Raises FailedPrecondition, NotFound."""
    text = message_id(*id_)
    if done.outcomes[id_] is Outcome.UNKNOWN:
        raise _unknown(topic_name, text)
    if done.outcomes[id_] is Outcome.NOT_RETAINED:
        raise FailedPrecondition(
            f"The message is not retained any more: nothing is published in its place (messageId={text})."
        )
    replaced_by = done.retractions[id_].replaced_by
    if replaced_by is None:
        raise FailedPrecondition(
            f"The message was retracted before: nothing is published in its place (messageId={text})."
        )
    return replaced_by


async def _answer(given: dict[str, Id], done: Done, may_see: AskPermission) -> Retracted:
    """Returns the outcomes and states of the ids that may belong to the topic."""
    states = {}
    for name, some in sorted(done.states.items()):
        if await is_permitted(may_see, name):
            states[name] = {text: some[id_] for text, id_ in given.items() if id_ in some}
    outcomes = {text: done.outcomes[id_] for text, id_ in given.items()}
    return Retracted(outcomes=outcomes, states=states)


def _unknown(topic_name: str, text: str) -> NotFound:
    return NotFound(f"There is no message {text} of {topic_name} (messageId={text}).")
