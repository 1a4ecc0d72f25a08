"""Ack ids: opaque names of one delivery of one message.

An ack id is base64url (no padding) of 30 bytes: 27 that all messages of one delivery attempt share, then 3
for the message's ordinal.  27 and 3 bytes are whole base64 groups, so a response of a thousand ids is one prefix
and a thousand table look-ups, and a thousand acknowledged ids fall into groups by their first 36 characters.
"""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from functools import lru_cache
from zlib import crc32

import msgspec

from broker.model.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery
from broker.model.errors import InvalidArgument

MAX_ACK_BYTES = 524_288  # of a request with ack ids, as at Google
MAX_ACK_IDS = MAX_ACK_BYTES // 40  # of a request: an ack id has 40 characters
_PLAIN, _ORDERED = 1, 2  # the first byte
_PREFIX = struct.Struct(">B6s6sqH")  # version, subscription_id, shard_id, attempt_id, message count
_CHECK = struct.Struct(">I")
_PREFIX_CHARACTERS = 36
_BETWEEN = "\n"


def _suffix(ordinal: int) -> str:
    return urlsafe_b64encode(struct.pack(">HB", ordinal, ordinal * 7 % 251)).decode()


_SUFFIXES = [_suffix(ordinal) for ordinal in range(MAX_MESSAGES_PER_ATTEMPT)]
_ORDINALS = {suffix: ordinal for ordinal, suffix in enumerate(_SUFFIXES)}


class AttemptName(msgspec.Struct, frozen=True, gc=False):
    """The name of a delivery attempt, as ack ids have it.

    `count` is the number of messages that its row has a bit for: delivered ones, and if it is `ordered` (holds an
    ordering key) those that came back and wait.
    """

    subscription_id: int
    shard_id: int
    attempt_id: int
    count: int
    ordered: bool = False


# Messages by what their ack ids name: of each attempt their ordinals, from 0.
MessageNames = dict[AttemptName, set[int]]


def attempt_name(subscription_id: int, delivery: Delivery) -> AttemptName:
    """The name of the attempt that a delivery was made under."""
    count = len(delivery.messages) + delivery.returned
    return AttemptName(subscription_id, delivery.shard_id, delivery.attempt_id, count, delivery.ordered)


def make_ack_ids(attempt: AttemptName, ordinals: Iterable[int]) -> list[str]:
    """The ack ids of the messages at `ordinals` (from 0) of one delivery attempt."""
    head = _PREFIX.pack(
        _ORDERED if attempt.ordered else _PLAIN,
        attempt.subscription_id.to_bytes(6, "big"),
        attempt.shard_id.to_bytes(6, "big"),
        attempt.attempt_id,
        attempt.count,
    )
    prefix = urlsafe_b64encode(head + _CHECK.pack(crc32(head))).decode()
    return [prefix + _SUFFIXES[ordinal] for ordinal in ordinals]


def ack_ids_of(
    subscription_id: int, delivery: Delivery, start: int = 0, end: int = MAX_MESSAGES_PER_ATTEMPT
) -> list[str]:
    """Returns the ack ids of the messages of a delivery, or of those from `start` up to before `end`."""
    return make_ack_ids(attempt_name(subscription_id, delivery), delivery.ordinals[start:end])


@lru_cache(maxsize=4096)
def _parse_prefix(prefix: str) -> AttemptName | None:
    try:
        raw = urlsafe_b64decode(prefix.encode("ascii"))
    except (Base64Error, ValueError):
        return None
    if len(raw) != _PREFIX.size + _CHECK.size:
        return None
    head, check = raw[: _PREFIX.size], raw[_PREFIX.size :]
    version, subscription_id, shard_id, attempt_id, count = _PREFIX.unpack(head)
    if (
        version not in (_PLAIN, _ORDERED)
        or _CHECK.unpack(check)[0] != crc32(head)
        or count > MAX_MESSAGES_PER_ATTEMPT
    ):
        return None
    return AttemptName(
        int.from_bytes(subscription_id, "big"),
        int.from_bytes(shard_id, "big"),
        attempt_id,
        count,
        ordered=version == _ORDERED,
    )


def group_ack_ids(ack_ids: Sequence[str], *, subscription_id: int) -> dict[AttemptName, set[int]]:
    """The ordinals named by `ack_ids`, by delivery attempt.

    Raises InvalidArgument for the first id that this broker did not make for this subscription; the whole call
    is refused then, as by Google's service.
    """
    if (whole := _whole_response(ack_ids)) is not None and whole.subscription_id == subscription_id:
        return {whole: set(range(whole.count))}
    suffixes: dict[str, list[str]] = {}  # by prefix; the ack ids of a response come one after the other
    of_prefix: list[str] = []
    prefix = None
    for ack_id in ack_ids:
        if prefix is None or not ack_id.startswith(prefix):
            prefix = ack_id[:_PREFIX_CHARACTERS]
            of_prefix = suffixes.setdefault(prefix, [])
        of_prefix.append(ack_id[_PREFIX_CHARACTERS:])
    attempts: dict[AttemptName, set[int]] = {}
    for prefix, of_prefix in suffixes.items():
        attempt = _parse_prefix(prefix)
        ordinals = {_ORDINALS.get(suffix, len(_ORDINALS)) for suffix in of_prefix}
        if attempt is None or attempt.subscription_id != subscription_id:
            raise _invalid(prefix + of_prefix[0])
        if max(ordinals) >= attempt.count:
            raise _invalid(prefix + max(of_prefix, key=lambda suffix: _ORDINALS.get(suffix, len(_ORDINALS))))
        attempts[attempt] = ordinals
    return attempts


def _whole_response(ack_ids: Sequence[str]) -> AttemptName | None:
    """Returns the attempt of these ack ids, if they are all of its response, in the same order.

    Clients that pull, work and ack send a response's ids back like that.  To compare them with the response takes a
    tenth of the time of parsing each.
    """
    prefix = ack_ids[0][:_PREFIX_CHARACTERS] if ack_ids else ""
    attempt = _parse_prefix(prefix)
    if attempt is None or attempt.count != len(ack_ids):
        return None
    # As one text each.  None of our ids has what stands between them: as many that make this text are these.
    made = prefix + f"{_BETWEEN}{prefix}".join(_SUFFIXES[: attempt.count])
    return attempt if _BETWEEN.join(ack_ids) == made else None


def _invalid(ack_id: str) -> InvalidArgument:
    return InvalidArgument(f"You have passed an invalid ack ID to the service (ack_id={ack_id}).")
