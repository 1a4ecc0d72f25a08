"""Reads protobuf's wire format without decoding it: no objects are created for the content of a request.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator, Sequence

from broker.model.errors import InvalidArgument

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
MAX_BEFORE_NAME = 10_000  # fields before the name of a request's resource; some milliseconds
_SIZES = {FIXED64: 8, FIXED32: 4, START_GROUP: 0, END_GROUP: 0}
_CONTINUED = bytes(range(0x80, 0x100))

Buffer = bytes | bytearray


def fields(body: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The number, the wire type, and where the value begins and ends of each field between `at` and `end`.

    A value may end beyond `end`, where the message is cut off.  What is no valid field ends the iteration: the
    decoder will say so.  The fields of a group are those of the message around it.
    """
    while at < end:
        tag = body[at]
        at += 1
        if tag & 0x80:
            tag, at = _varint(body, at - 1, end)
        kind, start = tag & 7, at
        if kind == LENGTH:
            if at >= end:
                return
            length = body[at]
            at += 1
            if length & 0x80:
                length, at = _varint(body, at - 1, end)
            start, at = at, at + length
        elif kind == VARINT:
            _, at = _varint(body, at, end)
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            return
        yield tag >> 3, kind, start, at


def find_text(body: Buffer, path: Sequence[int]) -> str | None:
    """The first text at a path of field numbers; None: it is not there as a whole.

    Raises InvalidArgument after MAX_BEFORE_NAME fields.
    """
    found = _find(body, 0, len(body), path, [MAX_BEFORE_NAME])
    return None if found is None else body[found[0] : found[1]].decode("utf-8", "replace")


def count_varints(body: Buffer, start: int, end: int) -> int:
    """Returns how many numbers a packed field has: the last byte of each is below 0x80."""
    return len(bytes(body[start:end]).translate(None, _CONTINUED))


def _find(body: Buffer, at: int, end: int, path: Sequence[int], left: list[int]) -> tuple[int, int] | None:
    for number, kind, start, stop in fields(body, at, end):
        if number == path[0] and kind == LENGTH:
            if len(path) > 1:
                found = _find(body, start, min(stop, end), path[1:], left)
                if found is not None:
                    return found
            elif start < stop <= end:
                return start, stop
        left[0] -= 1
        if not left[0]:
            raise InvalidArgument(
                f"The request has more than {MAX_BEFORE_NAME} fields before the name of its resource, "
                "which must be first."
            )
    return None


def _varint(body: Buffer, at: int, end: int) -> tuple[int, int]:
    """The number, and where it ends; past `end` if it is cut off or longer than ten bytes."""
    value = shift = 0
    while at < end and shift < 70:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end + 1
