"""Packing checked messages into parts that can be appended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.core.log.messages import EncodedMessages, Identified, encode_messages, encode_with_gaps
from broker.features.delayed.rows import encode_scheduled
from broker.model.message import NewMessage


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
    delayed; `ttls`: the time to live of each, if any expires; `digests`: the identity of each, if repeats are
    recognized for the `window`.
    """

    messages: Sequence[NewMessage | None]
    stored: Sequence[NewMessage]
    shared: Sequence[str] = ()
    due_ats: Sequence[datetime | None] | None = None
    ttls: Sequence[timedelta | None] | None = None
    digests: Sequence[bytes | None] | None = None
    window: timedelta = timedelta(0)

    def pack(self) -> EncodedMessages:
        """Raises InvalidArgument for U+0000 in an attribute or ordering key."""
        batch = self._pack()
        if self.digests is not None:
            batch.identified, batch.some = Identified(self.digests, self.window), self.some
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
        digests = None if self.digests is None else [self.digests[index] for index in indexes]
        return Packing(
            messages,
            stored,
            shared,
            due_ats=due_ats if due_ats and any(due_ats) else None,
            ttls=ttls,
            digests=digests if digests and any(digests) else None,
            window=self.window,
        ).pack()
