"""Packs checked messages into parts that can be appended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from broker.core.log.messages import (
    EncodedMessages,
    Identified,
    ScheduledPart,
    encode_messages,
    encode_with_gaps,
    in_microseconds,
)
from broker.model.message import NewMessage

_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Part(NamedTuple):
    """Messages of one ordering key for one shard.  `indexes`: their indexes among the given ones; None: all."""

    shard_id: int
    batch: EncodedMessages
    indexes: Sequence[int] | None = None


@dataclass(slots=True)
class Packing:
    """Messages with all that is stored with them, of which `pack` and `some` make batches.

    `messages`: None for one that a transform dropped; `stored`: the others; `shared`: the attributes that the
    schema adds to each of these, as for encode_messages; `due_ats`: the due time of each message, if any is
    delayed; `ttls`: the time to live of each, if any expires; `identified`: the identity of each, if any has one.
    """

    messages: Sequence[NewMessage | None]
    stored: Sequence[NewMessage]
    shared: Sequence[str] = ()
    due_ats: Sequence[datetime | None] | None = None
    ttls: Sequence[timedelta | None] | None = None
    identified: Identified | None = None

    def replace(self, messages: Sequence[NewMessage | None]) -> None:
        """Store these messages instead; None: the message is dropped."""
        self.messages, self.stored = messages, [message for message in messages if message is not None]

    def pack(self) -> EncodedMessages:
        """Raises InvalidArgument for U+0000 in an attribute or ordering key."""
        batch = self._pack()
        if self.identified is not None:
            batch.identified, batch.some = self.identified, self.some
        return batch

    def _pack(self) -> EncodedMessages:
        if self.due_ats is not None:
            return encode_scheduled(self.messages, self.due_ats, self.shared, self.ttls)
        if len(self.stored) == len(self.messages):
            return encode_messages(self.stored, self.shared, self.ttls)
        return encode_with_gaps(self.messages, self.shared, self.ttls)

    def some(self, indexes: Sequence[int]) -> EncodedMessages:
        """The messages at these indexes alone."""
        messages = [self.messages[index] for index in indexes]
        stored = [message for message in messages if message is not None]
        shared: Sequence[str] = ()
        if self.shared:
            texts = iter(self.shared)
            of_each = ["" if message is None else next(texts) for message in self.messages]
            shared = [of_each[index] for index in indexes if self.messages[index] is not None]
        due_ats = None if self.due_ats is None else [self.due_ats[index] for index in indexes]
        ttls = None if self.ttls is None else [self.ttls[index] for index in indexes]
        return Packing(
            messages,
            stored,
            shared,
            due_ats=due_ats if due_ats and any(due_ats) else None,
            ttls=ttls,
            identified=self._some_identified(indexes),
        ).pack()

    def _some_identified(self, indexes: Sequence[int]) -> Identified | None:
        if self.identified is None:
            return None
        digests = [self.identified.digests[index] for index in indexes]
        return replace(self.identified, digests=digests) if any(digests) else None


def encode_scheduled(
    messages: Sequence[NewMessage | None],
    due_ats: Sequence[datetime | None],
    shared: Sequence[str] = (),
    ttls: Sequence[timedelta | None] | None = None,
) -> EncodedMessages:
    """Pack the messages of a request some of which are to come later, at `due_ats` (None: at once).

    A message that is None is not stored; `shared` is of the others (`encode_messages`), `ttls` of all.
    """
    texts = iter(shared)
    of_each = ["" if message is None or not shared else next(texts) for message in messages]
    at_once = [index for index, due_at in enumerate(due_ats) if due_at is None]
    indexes = [index for index, due_at in enumerate(due_ats) if due_at is not None]
    waiting = [_whole(message, of_each[index]) for index in indexes if (message := messages[index]) is not None]
    lives = None if ttls is None else [ttls[index] for index in at_once]
    now = _encode_at_once([messages[index] for index in at_once], [of_each[index] for index in at_once], lives)
    packed = encode_messages(waiting)
    part = ScheduledPart(
        indexes,
        [due_at for due_at in due_ats if due_at is not None],
        packed.sizes,
        packed.ordering_key,
        packed.attributes,
        packed.data,
        () if ttls is None else in_microseconds(ttls[index] for index in indexes),
    )
    return replace(
        now, size=now.size + packed.size, sizes=[*now.sizes, *packed.sizes], has_gaps=True, scheduled=part
    )


def _encode_at_once(
    messages: Sequence[NewMessage | None], shared: Sequence[str], ttls: Sequence[timedelta | None] | None
) -> EncodedMessages:
    stored = [message for message in messages if message is not None]
    texts = [text for text in shared if text]
    if not messages:
        return EncodedMessages(0, 0, None, b"", (), [])
    if len(stored) == len(messages):
        return encode_messages(stored, texts, ttls)
    return encode_with_gaps(messages, texts, ttls)


def _whole(message: NewMessage, shared: str) -> NewMessage:
    """Returns a message with its shared attributes, since it may be stored with other messages."""
    if not shared:
        return message
    return msgspec.structs.replace(message, attributes={**message.attributes, **_decode_attributes(shared)})
