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
    """Returns the verb of stored text; text of a newer broker, which may know more verbs, is returned as it is."""
    return next((verb for verb in Verb if verb == text), text)
