"""Ranges of the data of a message, as the header Range names them (RFC 9110, section 14)."""

import re
from dataclasses import dataclass

from broker.model.message_preview import WHOLE

_SINGLE = re.compile(rb"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """At most `count` bytes, from `first` on (None: the last ones)."""

    first: int | None = 0
    count: int = WHOLE


@dataclass(frozen=True, slots=True)
class MessageData:
    """Bytes of a message, from `first` on, out of `size`."""

    data: bytes
    first: int
    size: int


def cut(data: bytes, wanted: ByteRange) -> MessageData:
    """The bytes in a range of data that is at hand as a whole."""
    first = max(len(data) - wanted.count, 0) if wanted.first is None else wanted.first
    return MessageData(data[first : first + wanted.count], first, len(data))


def parse_range(header: bytes) -> ByteRange | None:
    """One range of bytes; None: the whole, as for a header that is to be ignored.

    That is one with another unit, with several ranges, or with a last byte before the first.
    """
    match = _SINGLE.fullmatch(header.strip().lower())
    if match is None:
        return None
    first, last, suffix = (None if part is None else min(int(part), WHOLE - 1) for part in match.groups())
    if suffix is not None:
        return ByteRange(None, suffix)
    if first is None or last is None:
        return ByteRange(first)
    return None if last < first else ByteRange(first, last - first + 1)
