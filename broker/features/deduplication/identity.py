"""Identities of messages: a publisher identifies a message by an attribute, and a message with the same id is a
repeat (J5).
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from broker.model.deduplication import Deduplication
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.publish_limits import TRACE_KEYS

DEDUP_ID = "broker-dedup-id"
MAX_ID = 256  # characters
_DIGEST = 16  # bytes: two of a billion billion messages may have the same one


def identities(messages: Sequence[NewMessage], deduplication: Deduplication) -> list[bytes | None] | None:
    """Returns the digests by which repeats of each message are found; None if no message has any.

    The digest of a message without one is None.  The ordering key is a part of each.  Raises InvalidArgument that
    names the message, the attribute and the value.
    """
    found: list[bytes | None] = []
    key: str | None = None
    of_id = of_content = b""
    for index, message in enumerate(messages):
        if message.ordering_key != key:
            key = message.ordering_key
            scope = b"%d:%b:" % (len(key.encode()), key.encode())
            of_id, of_content = b"id:" + scope, b"content:" + scope
        id_ = message.attributes.get(DEDUP_ID)
        if id_ is not None:
            _check_id(id_, index)
            found.append(blake2b(of_id + id_.encode(), digest_size=_DIGEST).digest())
        else:
            found.append(_by_content(message, of_content) if deduplication.content else None)
    return found if any(found) else None


def _check_id(id_: str, index: int) -> None:
    if not id_ or len(id_) > MAX_ID:
        why = f"has {len(id_)} characters, the maximum is {MAX_ID}" if id_ else "is empty"
        raise InvalidArgument(f"messages[{index}].attributes.{DEDUP_ID} {why} ({DEDUP_ID}={id_[:64]!r}).")


def _by_content(message: NewMessage, scope: bytes) -> bytes:
    """Returns the digest of a message's content.

    Attributes that clients add for traces differ each time, and are left out.
    """
    digest = blake2b(b"%b%d:" % (scope, len(message.data)), digest_size=_DIGEST)
    digest.update(message.data)
    if message.attributes:
        digest.update(_attributes(message.attributes))
    return digest.digest()


def _attributes(attributes: Mapping[str, str]) -> bytes:
    """Encodes attributes regardless of their order; each has its length, so that different ones differ."""
    texts = [
        text.encode() for name in sorted(attributes) if name not in TRACE_KEYS for text in (name, attributes[name])
    ]
    return b"".join([b"%d:%b" % (len(text), text) for text in texts])
