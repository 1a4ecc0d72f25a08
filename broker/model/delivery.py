"""Deliveries: messages that are delivered under an attempt id, and requests for them (A4, A7).

    delivering ──ack──► gone
        │ nack, or a claim that finds the ack deadline passed while the retry policy asks for a delay
        ▼
     pending (or nacked) ──next_delivery_at passes──► claimed again: a new attempt, attempt_number + 1
        ▲
    delivering ──ack deadline passes, no retry policy──► claimed again at once

A claim has two sources: messages that are due again, and fresh ones from the cursor on.  allocation.py decides how
many of each it delivers.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from broker.model.errors import InvalidArgument
from broker.model.journal import NOBODY, Author

MAX_MESSAGES_PER_ATTEMPT = 1000  # Google's cap on one pull response; also the width of a row's bit string
# Of message data and attributes; one message that is larger still comes alone.  gRPC's clients take 4 MiB at most
# unless told otherwise; Google's are not where PUBSUB_EMULATOR_HOST is set.
MAX_RESPONSE_BYTES, MAX_GRPC_RESPONSE_BYTES = 10_000_000, 3_000_000
MESSAGE_OVERHEAD = 128  # bytes that ids, time and punctuation add to a message in a response


class StoredMessage(msgspec.Struct, gc=False):  # of atomic values: the garbage collector has nothing to find
    """A message as read from the log.  `attributes` is JSON text.

    `id_seq`: what its id is made of (None: `seq`).
    """

    seq: int
    publish_time: datetime
    ordering_key: str | None
    attributes: str
    data: bytes
    id_seq: int | None = None

    @property
    def size(self) -> int:
        """Bytes this message counts against a response's budget."""
        return len(self.data) + len(self.attributes) + MESSAGE_OVERHEAD


class DeliveryRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The messages that one waiting pull, stream or endpoint can take: at most so many, and about so many bytes.

    `evenly`: no more than its part of the available messages, if others wait as well.  `author`: the caller that
    the journal names.
    """

    max_messages: int
    max_bytes: int
    evenly: bool = False
    author: Author = NOBODY

    def within(self, max_messages: int | None, max_bytes: int) -> "DeliveryRequest":
        """The same, for at most so many messages (None: as many as it is) and bytes."""
        if max_messages is None:
            max_messages = self.max_messages
        if self.max_bytes <= max_bytes and self.max_messages <= max_messages:
            return self
        return msgspec.structs.replace(
            self,
            max_messages=min(self.max_messages, max_messages),
            max_bytes=min(self.max_bytes, max_bytes),
        )


def delivery_request(max_messages: int, max_bytes: int) -> DeliveryRequest:
    """The request of a pull: at most MAX_MESSAGES_PER_ATTEMPT.  Raises InvalidArgument below one message."""
    if max_messages <= 0:
        raise InvalidArgument(
            "You have passed an invalid argument to the service (argument=max_messages): "
            f"maxMessages must be greater than 0, not {max_messages}."
        )
    return DeliveryRequest(max_messages=min(max_messages, MAX_MESSAGES_PER_ATTEMPT), max_bytes=max_bytes)


class Delivery(msgspec.Struct, frozen=True):
    """Messages that one response hands out under one attempt id, all for the n-th time (`attempt_number`).

    If they are `ordered` they are a key's, and hold it (A6); `returned` messages of the key that came back with
    them wait for them under the same attempt id.  `only`: which of the attempt's the messages are, if some were
    left out when they were transformed; those count as `returned`.
    """

    shard_id: int
    attempt_id: int
    attempt_number: int
    messages: Sequence[StoredMessage]
    ordered: bool = False
    returned: int = 0
    only: Sequence[int] | None = None

    @property
    def ordinals(self) -> Sequence[int]:
        """The ordinals of the messages in the attempt."""
        return range(len(self.messages)) if self.only is None else self.only
