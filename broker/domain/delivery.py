"""How one claim shares messages out: the pure part of delivery (A4, A7).

    delivering ──ack──► gone
        │ nack, or a claim that finds the ack deadline passed while the retry policy asks for a delay
        ▼
     pending (or nacked) ──next_delivery_at passes──► claimed again: a new attempt, attempt_number + 1
        ▲
    delivering ──ack deadline passes, no retry policy──► claimed again at once

    due and delivered as often as the dead-letter policy allows ──a claim finds it──► exhausted ──the dead-letter
    forwarder──► published on the dead-letter topic (or pending again, if there is no such topic any more)

A claim has two sources: messages that are due again and fresh ones from the cursor on.  How they share it is in
due_share.py: a thousand messages that always fail must not starve the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import msgspec

from broker.domain.errors import InvalidArgument
from broker.domain.journal import NOBODY, Author
from broker.domain.stretch import Source, Stretch, close_runs, count_of, size_of

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


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one waiting pull would take: at most so many messages and about so many bytes.

    `evenly`: no more than its part of what there is, if others wait as well.  `author`: whom the journal names.
    """

    max_messages: int
    max_bytes: int
    evenly: bool = False
    author: Author = NOBODY

    def within(self, max_messages: int | None, max_bytes: int) -> "Demand":
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


def demand_of(max_messages: int, max_bytes: int) -> Demand:
    """The demand of a pull: at most MAX_MESSAGES_PER_ATTEMPT.  Raises InvalidArgument for less than one message."""
    if max_messages <= 0:
        raise InvalidArgument(
            "You have passed an invalid argument to the service (argument=max_messages): "
            f"maxMessages must be greater than 0, not {max_messages}."
        )
    return Demand(max_messages=min(max_messages, MAX_MESSAGES_PER_ATTEMPT), max_bytes=max_bytes)


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
        """Of the messages, in the attempt."""
        return range(len(self.messages)) if self.only is None else self.only


class Redelivery(NamedTuple):
    """A message without an ordering key that is due for its attempt `number`, since `next_delivery_at`."""

    number: int
    message: Stretch
    next_delivery_at: datetime
    is_just_retried: bool = False

    @property
    def available(self) -> Sequence[Stretch]:
        return (self.message,)


@dataclass(slots=True)
class Share:
    """What a demand was given: fresh messages in log order, and redelivered ones by attempt number."""

    fresh: list[Stretch] = field(default_factory=list)
    redelivered: dict[int, list[Stretch]] = field(default_factory=dict)

    @property
    def stretches(self) -> list[Stretch]:
        return [*(stretch for stretches in self.redelivered.values() for stretch in stretches), *self.fresh]


def left_over(demands: Sequence[Demand], given: Sequence[Sequence[Stretch]]) -> list[Demand]:
    """What the demands would still take when they have been given these messages."""
    left = []
    for demand, stretches in zip(demands, given, strict=True):
        room = demand.max_bytes - size_of(stretches)
        count = demand.max_messages - count_of(stretches) if room > 0 or not stretches else 0
        left.append(msgspec.structs.replace(demand, max_messages=count, max_bytes=room))
    return left


def even_parts(demands: Sequence[Demand], available: int, *, among: int) -> Sequence[Demand]:
    """The demands when `available` messages are shared out: the even ones take no more than their part of them.

    `among`: how many of the demands can get something at all (as many as there are ordering keys, say).
    """
    part = max(1, -(-available // max(1, min(len(demands), among))))
    return [demand.within(part if demand.evenly else None, demand.max_bytes) for demand in demands]


def share_out(demands: Sequence[Demand], redeliveries: Sequence[Redelivery], fresh: Source) -> list[Share]:
    """Fill the demands in turn, redeliveries first, within each one's limits.

    A demand that has nothing yet takes its next message whatever its size: a message larger than any budget
    must still be delivered.  What fits nowhere is in no share; both sources are used from their front only.
    """
    shares = [Share() for _ in demands]
    again = 0  # how far the redeliveries are used
    for demand, share in zip(demands, shares, strict=True):
        room, taken = demand.max_bytes, 0
        while again < len(redeliveries) and taken < demand.max_messages:
            number, message = redeliveries[again][:2]
            room -= message.size
            if taken and room < 0:
                break
            share.redelivered.setdefault(number, []).append(message)
            again, taken = again + 1, taken + 1
        share.fresh = fresh.take(demand.max_messages - taken, room, at_least=0 if taken else 1)
    return shares


def as_attempts(
    redelivered: Mapping[int, Sequence[Stretch]], fresh: Sequence[Stretch]
) -> Iterator[tuple[int, Sequence[Stretch]]]:
    """Messages as attempts with their number: one each attempt number, split where sequences lie far apart."""
    for number, stretches in redelivered.items():
        yield from ((number, run) for run in close_runs(sorted(stretches)))
    yield from ((1, run) for run in close_runs(fresh))
