"""Retraction: a message is withdrawn by whoever publishes, and never handed out again (J6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.domain.delivery_state import DeliveryState
from broker.domain.errors import InvalidArgument
from broker.domain.message_id import parse_message_id
from broker.domain.outcome import Outcome

MAX_RETRACTED = 1_000  # messages of one call
MAX_ANSWERS = 100_000  # of one call: so many messages times so many subscriptions


class Standing(StrEnum):
    """How a message stood with a subscription when it was retracted; nobody gets it from then on."""

    IN_TIME = "neverHandedOut"
    RETURNED = "returned"  # it was handed out, and had come back
    OUTSTANDING = "outstanding"  # somebody has it, and may ack it
    DONE_WITH = "settled"  # it was acknowledged, given up, or passed by a seek


def standing_of(state: DeliveryState, attempts: int) -> Standing | None:
    """What is told of a message that stands so, after so many attempts (None: it was never the subscription's)."""
    if state is DeliveryState.BEFORE_SUBSCRIPTION:
        return None
    if state is DeliveryState.OUTSTANDING:
        return Standing.OUTSTANDING
    if state is DeliveryState.SETTLED:
        return Standing.DONE_WITH
    return Standing.RETURNED if attempts else Standing.IN_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """That a message was retracted, and when.  `head`: the last message that was published before that.
    `standings`: by subscription, where it was not in time.  `replaced_by`: shard and number of what was published
    in its place.  `cancelled`: it was a scheduled message, and was cancelled before its time came.
    """

    shard_id: int
    seq: int | None
    publish_time: datetime
    retracted_at: datetime
    by: str
    head: int
    standings: Mapping[int, Standing]
    replaced_by: tuple[int, int] | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retracted:
    """What became of the messages of a call, by their ids; and how each stood, by the names of the subscriptions.

    `replacement`: the id of what stands in their place.
    """

    outcomes: Mapping[str, Outcome]
    standings: Mapping[str, Mapping[str, Standing]]
    replacement: str = ""


def check_retraction(message_ids: Sequence[str], at: str) -> None:
    """`at`: the field that has them, with {} for the index.  Raises InvalidArgument."""
    count = len(message_ids)
    if not 1 <= count <= MAX_RETRACTED:
        raise InvalidArgument(f"messageIds has {count} ids, from 1 to {MAX_RETRACTED:,} are needed.")
    for index, text in enumerate(message_ids):
        parse_message_id(text, at.format(index))


def check_answers(messages: int, subscriptions: int) -> None:
    """Raises InvalidArgument: the answer says how each message stands with each subscription."""
    if messages * subscriptions > MAX_ANSWERS:
        raise InvalidArgument(
            f"messageIds has {messages} ids, the maximum is {max(MAX_ANSWERS // subscriptions, 1):,} for a topic "
            f"with {subscriptions:,} subscriptions."
        )


def of_another_topic(at: str, text: str, topic: str) -> InvalidArgument:
    """`topic`: its name; "": the caller is not told."""
    whose = f"of {topic}" if topic else "of another topic"
    return InvalidArgument(f"Invalid value at '{at}': the message is {whose} (messageId={text}).")
