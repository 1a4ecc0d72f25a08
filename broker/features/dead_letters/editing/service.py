"""Edits dead letters, which return as new messages to the subscription that dead-lettered them; an
extension (G2).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from broker.core.context.core import Core
from broker.core.filtering.evaluate import matches
from broker.core.filtering.parser import parse_filter
from broker.core.log.logged_message import LoggedMessage, read_message
from broker.core.log.message_ids import located
from broker.core.log.partitions import with_partitions
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publishing_rules import EDIT, check_accepts
from broker.core.resources.permitted import AskPermission
from broker.core.resources.subscription_service import attached_subscription
from broker.db.driver.hot_transactions import hot_transaction
from broker.features.dead_letters.chosen import ADDED
from broker.features.dead_letters.dead_letter_groups import resolved_of
from broker.features.dead_letters.dead_letter_state import Resolution
from broker.features.dead_letters.discarding.rows import (
    Discard,
    Done,
    find_dead_letter_subscriptions,
    find_dead_letters,
)
from broker.features.dead_letters.editing.edit import DeadLetterEdit, Edited, check_edit
from broker.features.dead_letters.editing.private_shards import private_shard_of
from broker.features.dead_letters.editing.rows import Replacement, editable, replace_dead_letter
from broker.features.dead_letters.redriving.service import consumable
from broker.model.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound
from broker.model.journal import Author
from broker.model.message import NewMessage
from broker.model.message_id import message_id, parse_message_id
from broker.model.names import project_of
from broker.model.publish_limits import named
from broker.model.subscription import Subscription
from broker.model.topic import Topic
from broker.observability.log import fields_of

_TRIES = 10  # each passes many messages that precede a dead letter
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class EditService:
    """Edits dead letters: one commit removes the old ones and publishes the new message."""

    def __init__(self, core: Core, preparation: Preparation) -> None:
        self._preparation = preparation
        self._resources = core.resources
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._attempt_ids = core.attempt_ids
        self._states = core.states

    async def edit(self, name: str, edit: DeadLetterEdit, *, by: str = "", may_consume: AskPermission) -> Edited:
        """Edits a dead letter.  Dead letters stay in subscriptions for which `may_consume` raises PermissionDenied.

        Raises InvalidArgument (the id, or a message that could not be published), NotFound (no subscription, no
        such dead letter), FailedPrecondition (the subscription is detached; the dead letter is not retained; the
        subscription's filter does not match the new message; a subscription that the caller may not consume has the
        dead letter), StorageLow, Aborted.
        """
        await self._preparation.check_storage(EDIT, project_of(name))
        check_edit(edit)
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, name)
        asked = Discard(
            subscription_id=subscription.subscription_id,
            shard_ids=subscription.shard_ids,
            ids=await self._located(edit),
            consumable=(),
            author=Author(principal=by),
            now=self._clock.now(),
        )
        dead_letters, source, allowed = await self._find(asked, edit, may_consume)
        message = _edited(source, edit)
        topic = await self._topic(subscription)
        check_accepts(topic, EDIT)
        with named("the edited message"):
            prepared = await self._preparation.prepare(topic, [message], EDIT)
        await self._preparation.admit(prepared, EDIT, by)
        if subscription.filter and not matches(parse_filter(subscription.filter), message.attributes, message.data):
            raise FailedPrecondition(
                f"The subscription's filter leaves the edited message out (filter={subscription.filter})."
            )
        shard_id = await private_shard_of(name, self._database, self._clock, self._wake_ups)
        [part] = prepared.parts
        wanted = Replacement(asked=replace(asked, consumable=allowed), batch=part.batch, shard_id=shard_id)
        new_id = message_id(shard_id, await self._replace(wanted))
        self._preparation.charge([prepared], EDIT, by)
        self._wake_ups.redeliverable(subscription.subscription_id)
        self._wake_ups.published(shard_id)
        names = {message_id(*asked.ids[0]): edit.message_id}  # delayed messages are found by their sequences
        sources = {message_id(dead_letter.source_shard_id, dead_letter.source_seq) for dead_letter in dead_letters}
        olds = sorted({names.get(source, source) for source in sources})
        what = f"message {olds[0]} of {name} is edited{f' by {by}' if by else ''}, and comes back as {new_id}"
        self._states.report("edits", what, fields=fields_of(name, principal=by, message_id=olds[0]))
        return Edited(message_id=new_id, replaces=olds, out_of_order=_is_out_of_order(subscription, message))

    async def _topic(self, subscription: Subscription) -> Topic:
        """Returns the topic whose rules the message must satisfy: a plain one if the subscription's was deleted."""
        try:
            return await self._resources.topic(subscription.topic)
        except (NotFound, InvalidArgument):
            return Topic(name=subscription.topic, shard_ids=subscription.shard_ids)

    async def _located(self, edit: DeadLetterEdit) -> list[tuple[int, int]]:
        """Returns the sequence of the message.  The id of a delayed message is not made of it."""
        async with self._database.hot() as hot:
            return await located(hot, [parse_message_id(edit.message_id)])

    async def _find(
        self, asked: Discard, edit: DeadLetterEdit, may_consume: AskPermission
    ) -> tuple[Sequence[Any], LoggedMessage, frozenset[int]]:
        async with self._database.hot() as hot:
            dead_letters = await find_dead_letters(hot, asked)
            if not dead_letters:
                raise NotFound(f"The subscription has no such dead letter (messageId={edit.message_id}).")
            newest = max(dead_letters, key=lambda each: each.publish_time)
            dead_letters = editable(dead_letters)
            if not dead_letters:
                raise FailedPrecondition(_why_not(newest, edit))
            found = await find_dead_letter_subscriptions(hot, asked)
            for dead_letter in sorted(dead_letters, key=lambda each: each.publish_time, reverse=True):
                source = await read_message(hot, shard_id=dead_letter.shard_id, id_seq=dead_letter.seq)
                if source is not None:
                    break
            else:
                raise FailedPrecondition(_why_not(newest, edit))
        return dead_letters, source, frozenset(await consumable(found, may_consume))

    async def _replace(self, wanted: Replacement) -> int:
        for _ in range(_TRIES):
            seq, done = await with_partitions(self._database, self._clock.now, partial(self._step, wanted))
            for subscription_id in done.woken:
                self._wake_ups.redeliverable(subscription_id)
            if seq is not None:
                return seq
        raise Aborted("Too much stands before its dead letter: the same call goes on from there.")

    async def _step(self, wanted: Replacement) -> tuple[int | None, Done]:
        async with hot_transaction(self._database) as connection:
            return await replace_dead_letter(connection, wanted, self._attempt_ids)


def _why_not(dead_letter: Any, edit: DeadLetterEdit) -> str:
    """Returns why a dead letter cannot be edited: it was discarded or edited before, or is no longer retained."""
    resolved = resolved_of(dead_letter)
    if resolved is None:
        return f"Its dead letter is no longer retained (messageId={edit.message_id})."
    kept = ", and is no longer retained" if resolved.resolution is Resolution.ACKNOWLEDGED else ""
    return f"Its dead letter {resolved.verdict()}{kept} (messageId={edit.message_id})."


def _edited(source: LoggedMessage, edit: DeadLetterEdit) -> NewMessage:
    had = {name: text for name, text in _decode_attributes(source.attributes).items() if name not in ADDED}
    return NewMessage(
        data=source.data if edit.data is None else edit.data,
        attributes=edit.attributes(had),
        ordering_key=source.ordering_key or "",
    )


def _is_out_of_order(subscription: Subscription, message: NewMessage) -> bool:
    return subscription.enable_message_ordering and bool(message.ordering_key)
