"""Digests: several messages in one POST (C4), an extension.

    {"subscription": "projects/p/subscriptions/s",
     "messages": [{"message": {… as in the request of a single message …}, "deliveryAttempt": 2}, …]}

A success status acknowledges all of them, unless the body of the answer is JSON that names failed ones:
{"failedMessageIds": ["…"]}.
"""

import msgspec

from broker.model.delivery import StoredMessage


class DigestItem(msgspec.Struct, gc=False):
    """A message of a digest, where it comes from, and which attempt to deliver it this is."""

    message: StoredMessage
    shard_id: int
    attempt_number: int


class _Verdict(msgspec.Struct, rename="camel"):
    failed_message_ids: list[str] = []


_decode = msgspec.json.Decoder(_Verdict).decode


def failed_message_ids(body: bytes) -> frozenset[str]:
    """The ids that the answer to a digest names as failed; none if the body is anything else.

    Ids that were not in the digest may be among them: the caller looks its own up.
    """
    try:
        return frozenset(_decode(body).failed_message_ids)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frozenset()
