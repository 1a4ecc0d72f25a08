"""The outcome, for each message, of an operation on messages of a subscription (G2, J6)."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The outcome for a message, in the same words in the answers and the progress of all operations.

    Each operation answers with some of them:

    discard     DISCARDED, ALREADY_SETTLED, WAITING, LEFT_ALONE, UNKNOWN
    purge       PURGED, OUTSTANDING
    redrive     REDRIVEN, SENT, ALREADY_THERE, OUTSTANDING, EDITED, GONE, REFUSED, RETRACTED
    resend      RESENT, OUTSTANDING, WAITING, FILTERED, NOT_RETAINED, RETRACTED, UNKNOWN
    replay      REPLAYED, OUTSTANDING, WAITING, DELIVERED, DEAD_LETTERED, DISCARDED, EXPIRED, NOT_RETAINED
    retraction  RETRACTED, ALREADY_RETRACTED, NOT_RETAINED, UNKNOWN
    release     RELEASED, DEAD_LETTERED, OUTSTANDING, WAITING, ALREADY_SETTLED, UNKNOWN
    deadLetter  DEAD_LETTERED, OUTSTANDING, WAITING, ALREADY_SETTLED, UNKNOWN
    """

    # It was done.
    DISCARDED = "discarded"
    PURGED = "purged"
    REDRIVEN = "redriven"
    SENT = "sent"  # redriven to another topic
    RESENT = "resent"
    REPLAYED = "replayed"
    RELEASED = "released"  # from the consumer that held it
    RETRACTED = "retracted"  # by this operation or an earlier one, so no subscription receives it again

    # Nothing was left to do.
    ALREADY_SETTLED = "alreadySettled"  # by this subscription, or the message was never meant for it
    ALREADY_THERE = "alreadyThere"  # the subscription has the message again; only its dead letter was removed
    ALREADY_RETRACTED = "alreadyRetracted"
    DELIVERED = "delivered"  # the endpoint has accepted it
    WAITING = "waiting"  # it will be delivered anyway; of a discard: repeat the call to continue

    # It was not done.
    OUTSTANDING = "outstanding"  # a consumer has it, or it is being dead-lettered
    LEFT_ALONE = "leftAlone"  # its dead letters are in subscriptions that the caller may not consume
    REFUSED = "refused"  # by the limits or the schema of the topic that it was sent to
    FILTERED = "filtered"  # the subscription's filter does not match it
    EXPIRED = "expired"  # it is past its time to live
    EDITED = "edited"  # its dead letter was edited, and came back as another message
    DEAD_LETTERED = "deadLettered"  # also by this operation; a redrive or a recovery brings it back
    GONE = "gone"  # neither the message nor its dead letter is retained
    NOT_RETAINED = "notRetained"
    UNKNOWN = "unknown"  # no message of the topic


def outcomes_json(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Encodes the outcome of each message by its id, and how many messages have each."""
    return {
        "results": [{"messageId": id_, "outcome": outcome} for id_, outcome in outcomes.items()],
        "counts": {outcome: str(count) for outcome, count in Counter(outcomes.values()).items()},
    }
