"""Retraction: a publisher withdraws a message, which is never delivered again (J6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.core.backlog.delivery_state import DeliveryState
from broker.core.backlog.outcome import Outcome
from broker.model.errors import InvalidArgument
from broker.model.message_id import parse_message_id

MAX_RETRACTED = 1_000  # messages of one call
MAX_ANSWERS = 100_000  # of one call: so many messages times so many subscriptions


class StateWhenRetracted(StrEnum):
    """The delivery state of a message when it was retracted, as in responses and `retracted_messages`."""

    NEVER_DELIVERED = "neverHandedOut"
    RETURNED = "returned"  # it was delivered, and would have been redelivered
    OUTSTANDING = "outstanding"  # a consumer has it, and may ack it
    SETTLED = "settled"  # it was acknowledged or dead-lettered, or a seek has passed it


def state_when_retracted(state: DeliveryState, attempts: int) -> StateWhenRetracted | None:
    """Returns the state that is recorded of a message after so many attempts.

    Returns None if the message was published before the subscription was created.
    """
    if state is DeliveryState.BEFORE_SUBSCRIPTION:
        return None
    if state is DeliveryState.OUTSTANDING:
        return StateWhenRetracted.OUTSTANDING
    if state is DeliveryState.SETTLED:
        return StateWhenRetracted.SETTLED
    return StateWhenRetracted.RETURNED if attempts else StateWhenRetracted.NEVER_DELIVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """The record that a message was retracted.  `head`: the last message that was published before that.

    `states` has the subscriptions to which the message had been delivered.  `replaced_by`: shard and number of the
    message that was published in its place.  `cancelled`: it was a scheduled message that was cancelled before its
    time came.
    """

    shard_id: int
    seq: int | None
    publish_time: datetime
    retracted_at: datetime
    by: str
    head: int
    states: Mapping[int, StateWhenRetracted]
    replaced_by: tuple[int, int] | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retracted:
    """The outcome for each message of a call, by id, and its state in each subscription, by name.

    `replacement`: the id of the message that was published in their place.
    """

    outcomes: Mapping[str, Outcome]
    states: Mapping[str, Mapping[str, StateWhenRetracted]]
    replacement: str = ""


def check_retraction(message_ids: Sequence[str], at: str) -> None:
    """Checks the ids of messages to retract.  `at`: the field that has them, with {} for the index.

    Raises InvalidArgument.
    """
    count = len(message_ids)
    if not 1 <= count <= MAX_RETRACTED:
        raise InvalidArgument(f"messageIds has {count} ids, from 1 to {MAX_RETRACTED:,} are needed.")
    for index, text in enumerate(message_ids):
        parse_message_id(text, at.format(index))


def check_answers(messages: int, subscriptions: int) -> None:
    """Raises InvalidArgument if there are too many messages and subscriptions: the response has a state for each
    pair.
    """
    if messages * subscriptions > MAX_ANSWERS:
        raise InvalidArgument(
            f"messageIds has {messages} ids, the maximum is {max(MAX_ANSWERS // subscriptions, 1):,} for a topic "
            f"with {subscriptions:,} subscriptions."
        )


def of_another_topic(at: str, text: str, topic: str) -> InvalidArgument:
    """Returns the error for a message of another topic.  `topic`: its name; "": the error does not name it."""
    whose = f"of {topic}" if topic else "of another topic"
    return InvalidArgument(f"Invalid value at '{at}': the message is {whose} (messageId={text}).")
