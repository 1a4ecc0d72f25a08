"""The states of a message that a subscription has not acknowledged (F3)."""

from enum import StrEnum


class MessageState(StrEnum):
    """WAITING: never delivered, or released before it reached a consumer.  OUTSTANDING: with a consumer, within its
    ack deadline.  RETRYING: to be redelivered after a nack, or since its ack deadline has passed.  BLOCKED: by an
    earlier message of its ordering key.  EXHAUSTED: delivered as often as the dead-letter policy allows, and about
    to be dead-lettered.
    """

    OUTSTANDING = "OUTSTANDING"
    RETRYING = "RETRYING"
    EXHAUSTED = "EXHAUSTED"
    BLOCKED = "BLOCKED"
    WAITING = "WAITING"


EVERY_STATE = frozenset(MessageState)
