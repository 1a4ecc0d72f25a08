"""Byte ranges of the data of a message, as in the HTTP header Range (RFC 9110, section 14)."""

import re
from dataclasses import dataclass

from broker.model.message_preview import WHOLE

_SINGLE = re.compile(rb"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of at most `count` bytes that begins at `first` (None: the last `count` bytes)."""

    first: int | None = 0
    count: int = WHOLE


@dataclass(frozen=True, slots=True)
class MessageData:
    """A part of the data of a message that begins at `first`; `size` is that of all data in bytes."""

    data: bytes
    first: int
    size: int


def cut(data: bytes, wanted: ByteRange) -> MessageData:
    """The bytes in a range of data that is at hand as a whole."""
    first = max(len(data) - wanted.count, 0) if wanted.first is None else wanted.first
    return MessageData(data[first : first + wanted.count], first, len(data))


def parse_range(header: bytes) -> ByteRange | None:
    """Returns the byte range of a Range header, None if the header is to be ignored and all data sent.

    Headers with another unit, with several ranges, or with a last byte before the first are ignored.
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
