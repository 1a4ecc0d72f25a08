"""STUB: many messages in one POST (C4)."""

from typing import NamedTuple

from broker.domain.delivery import StoredMessage


class DigestItem(NamedTuple):
    message: StoredMessage
    shard_id: int
    attempt_number: int


def failed_message_ids(body: bytes) -> frozenset[str]:
    """The ids that the answer to a digest names as failed."""
    raise NotImplementedError
