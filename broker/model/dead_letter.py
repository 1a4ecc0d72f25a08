"""The data of a dead letter about the original message (A5): its origin, and how its last attempt ended.

The reasons are a closed list, so that receivers can compare them:

    nack                the subscriber nacked it (an ack deadline of 0, or `:nack`)
    deadline            the ack deadline passed; of a push also: the broker that sent it ended
    reject              the subscriber dead-lettered it (`:reject`), however often it had been delivered
    push <status>       the endpoint answered with this HTTP status, such as `push 503`
    push timeout        the endpoint did not answer within the ack deadline
    push unreachable    there was no connection, or no HTTP answer on it
    transform           a transform of the subscription failed for it
    push digest         the endpoint accepted the digest, but named this message as failed
    expired             it had expired (features/expiry/expiry.py), and the subscription dead-letters such messages
    unknown             no failure was recorded for its last attempt
"""

from datetime import datetime, timedelta
from typing import Final

SOURCE_MESSAGE_ID: Final = "broker-source-message-id"  # attributes of a dead letter, beside Google's
REASON: Final = "broker-dead-letter-reason"

NACK: Final = "nack"
REJECT: Final = "reject"
TRANSFORM: Final = "transform"
PUSH: Final = "push "  # so begins each that a push failed for
PUSH_TIMEOUT: Final = "push timeout"
PUSH_UNREACHABLE: Final = "push unreachable"
PUSH_DIGEST: Final = "push digest"
EXPIRED: Final = "expired"
UNKNOWN: Final = "unknown"
DEADLINE: Final = "deadline"  # which is written where deadlines are found to have passed: in SQL

KEPT: Final = timedelta(days=7)  # a dead letter that no subscription of its topic has received


def push_answered(status: int | None) -> str:
    """The reason of a push that was answered with this status (None: it was not)."""
    return PUSH_UNREACHABLE if status is None else f"{PUSH}{status}"


def kept_since(topic_retention: timedelta | None, now: datetime) -> datetime:
    """Return the publish time from which dead letters are kept that no subscription has received."""
    return now - max(KEPT, topic_retention or KEPT)
