"""The word, colour and shape of each state that pages show.

A state never has its colour alone: its word is beside it, and its shape differs.
"""

from typing import Literal, NamedTuple

from broker.model.push_history import LATE

Level = Literal["ok", "warning", "critical", "paused", "idle"]


class State(NamedTuple):
    """`rank`: the worst first."""

    word: str
    level: Level

    @property
    def rank(self) -> int:
        return _RANKS[self.level]


_RANKS: dict[Level, int] = {"critical": 0, "warning": 1, "paused": 2, "ok": 3, "idle": 4}

_OF_SUBSCRIPTIONS = {
    "CAUGHT_UP": State("Caught up", "ok"),
    "RECENT": State("Recent", "ok"),
    "DETACHED": State("Detached", "idle"),
    "EXPORT": State("Export", "idle"),
    "PAUSED": State("Paused", "paused"),
    "WAITING_FOR_SLOTS": State("Waiting for slots", "paused"),
    "ENDPOINT_FAILING": State("Endpoint fails", "critical"),
    "NO_CONSUMERS": State("No consumers", "warning"),
    "BLOCKED_KEY": State("Key blocked", "warning"),
    "RETRYING": State("Retrying", "warning"),
    "SLOW_ENDPOINT": State("Slow endpoint", "warning"),
    "SLOW_CONSUMERS": State("Slow consumers", "warning"),
}
_OF_MESSAGES = {
    "ACKNOWLEDGED": State("Acknowledged", "ok"),
    "OUTSTANDING": State("Outstanding", "idle"),
    "WAITING": State("Waiting", "idle"),
    "BLOCKED": State("Blocked by its key", "paused"),
    "RETRYING": State("Retrying", "warning"),
    "EXHAUSTED": State("Attempts used up", "critical"),
    "DEAD_LETTERED": State("Dead-lettered", "critical"),
}
_OF_OPERATIONS = {
    "RUNNING": State("Running", "idle"),
    "SUCCEEDED": State("Succeeded", "ok"),
    "FAILED": State("Failed", "critical"),
    "CANCELLED": State("Cancelled", "idle"),
}

TAIL_STATES = {
    "waiting": State("Connecting", "idle"),
    "following": State("Following", "ok"),
    "paused": State("Paused", "paused"),
    "reconnecting": State("Reconnecting", "warning"),
    "polling": State("Read every 5 s", "idle"),
    "ended": State("Ended", "critical"),
}  # as tail.js names them


def of_subscription(state: str) -> State:
    return _OF_SUBSCRIPTIONS.get(state) or _other(state)


def of_message(state: str) -> State:
    return _OF_MESSAGES.get(state) or _other(state)


def of_operation(state: str) -> State:
    return _OF_OPERATIONS.get(state) or _other(state)


def of_push(outcome: str, status: str) -> State:
    """Return the state of push requests with this outcome and status."""
    if status == LATE:
        return State("Delivered late", "warning")
    return State("Delivered", "ok") if outcome == "DELIVERED" else State("Failed", "critical")


def _other(state: str) -> State:
    """A state without a colour of its own, in words: "Not retained" of "NOT_RETAINED"."""
    return State(state.replace("_", " ").capitalize(), "idle")
