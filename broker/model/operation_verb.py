"""The kinds of long-running operations, by the verbs of the calls that start them (G1)."""

from enum import StrEnum


class Verb(StrEnum):
    """The verb of a call that starts an operation."""

    REDRIVE = "redrive"
    COPY = "copy"
    PURGE = "purge"
    RECOVER = "recover"
    REPLAY_MISSING = "replayMissing"


def known_verb(text: str) -> Verb | str:
    """As it is stored; a newer broker, which started the operation, may know more of them."""
    return next((verb for verb in Verb if verb == text), text)
