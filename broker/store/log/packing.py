"""A request's messages, checked, on their way into the coalescer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.domain.message import NewMessage
from broker.store.log.messages import EncodedMessages, encode_messages, encode_with_gaps
from broker.store.log.scheduled_messages import encode_scheduled


@dataclass(slots=True)
class Packing:
    """`messages`: None for one that a transform dropped; `stored`: the others; `shared`: as of encode_messages, of
    those; `due_ats`: when each is to come, if any is to come later; `ttls`: for how long each is delivered, if any
    expires.
    """

    messages: Sequence[NewMessage | None]
    stored: Sequence[NewMessage]
    shared: Sequence[str] = ()
    due_ats: Sequence[datetime | None] | None = None
    ttls: Sequence[timedelta | None] | None = None

    def pack(self) -> EncodedMessages:
        """Raises InvalidArgument for U+0000 in an attribute or ordering key."""
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
        return Packing(messages, stored, shared, due_ats if due_ats and any(due_ats) else None, ttls).pack()
