"""How a message stands with a subscription (F3)."""

from enum import StrEnum


class MessageState(StrEnum):
    """`WAITING`: never handed out yet, or given back before it reached anybody.  `EXHAUSTED`: tried as often as the
    dead-letter policy allows, and about to go to its topic.
    """

    OUTSTANDING = "OUTSTANDING"
    RETRY_AT = "RETRY_AT"
    EXHAUSTED = "EXHAUSTED"
    HELD_BY_KEY = "HELD_BY_KEY"
    WAITING = "WAITING"


# As a list is asked for them.
ASKED = {
    "outstanding": frozenset({MessageState.OUTSTANDING}),
    "retrying": frozenset({MessageState.RETRY_AT, MessageState.EXHAUSTED}),
    "held": frozenset({MessageState.HELD_BY_KEY}),
    "waiting": frozenset({MessageState.WAITING}),
}
EVERY_STATE = frozenset(MessageState)
