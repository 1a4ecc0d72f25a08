"""Checks whether bytes are values in Avro's binary encoding.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.  A check reads a value without building one in
Python.  It is stricter than the decoders of libraries, which accept an int of 64 bits, a boolean of 2, a negative
index of an enum or a union, and a block whose stated size is wrong.
"""

from collections.abc import Callable, Sequence
from typing import Any

from broker.features.schemas.checking.avro_checks import TypeChecks
from broker.features.schemas.checking.mismatch import Misfit

# Takes a message and where a value begins in it, and returns where it ends.
# Raises Misfit, and IndexError where the message ends too early.
Check = Callable[[bytes, int], int]

_INT, _LONG = 2**31, 2**63
_INT_BYTES, _LONG_BYTES = 5, 10  # of a number at most


def _number(data: bytes, at: int, most: int = _LONG_BYTES) -> tuple[int, int]:
    """A number and where it ends.  Raises Misfit if it has more bytes than a number has."""
    value = shift = 0
    for end in range(at, at + most):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), end + 1
        shift += 7
    raise Misfit(f"at byte {at} a number has more than {most} bytes")


def _null(data: bytes, at: int) -> int:
    return at


def _boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise Misfit(f"at byte {at} a boolean is neither 0 nor 1")
    return at + 1


def _int(data: bytes, at: int) -> int:
    if data[at] < 0x80:
        return at + 1
    value, end = _number(data, at, _INT_BYTES)
    if not -_INT <= value < _INT:
        raise Misfit(f"at byte {at} an int has more than 32 bits")
    return end


def _long(data: bytes, at: int) -> int:
    if data[at] < 0x80:
        return at + 1
    value, end = _number(data, at)
    if not -_LONG <= value < _LONG:
        raise Misfit(f"at byte {at} a long has more than 64 bits")
    return end


def _bytes(data: bytes, at: int) -> int:
    size, start = _number(data, at)
    if size < 0:
        raise Misfit(f"at byte {at} a length is negative")
    return _within(data, start + size)


def _string(data: bytes, at: int) -> int:
    size = data[at]
    if size < 0x80 and not size & 1:
        start = at + 1
        end = start + (size >> 1)
    else:
        end = _bytes(data, at)
        _, start = _number(data, at)
    _within(data, end)
    text = data[start:end]
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise Misfit(f"at byte {start + error.start} a string is not UTF-8") from None
    return end


def _within(data: bytes, end: int) -> int:
    if end > len(data):
        raise IndexError
    return end


def _sized(size: int) -> Check:
    return lambda data, at: _within(data, at + size)


_PRIMITIVES: dict[str, Check] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _sized(4),
    "double": _sized(8),
    "bytes": _bytes,
    "string": _string,
}


def _index(data: bytes, at: int, count: int, what: str) -> tuple[int, int]:
    index, end = _number(data, at, _INT_BYTES)
    if not 0 <= index < count:
        raise Misfit(f"at byte {at} the index of {what} is not from 0 to {count - 1}")
    return index, end


def _enum(symbols: Sequence[str]) -> Check:
    count = len(symbols)
    return lambda data, at: _index(data, at, count, "an enum")[1]


def _union(branches: list[Check]) -> Check:
    count = len(branches)

    def check(data: bytes, at: int) -> int:
        index, end = _index(data, at, count, "a union")
        return branches[index](data, end)

    return check


def _sequence(parts: list[Check]) -> Check:
    """A record, an entry of a map."""

    def check(data: bytes, at: int) -> int:
        for part in parts:
            at = part(data, at)
        return at

    return check


def _blocks(item: Check) -> Check:
    """An array or a map.  An item takes at least a byte (avro_measure.py), so the loops end with the message."""

    def check(data: bytes, at: int) -> int:
        while True:
            count, at = _number(data, at)
            if not count:
                return at
            begins, size = at, None
            if count < 0:
                size, at = _number(data, at)
                begins = at
            for _ in range(abs(count)):
                at = item(data, at)
            if size is not None and at != begins + size:
                raise Misfit(f"at byte {begins} a block has {at - begins} bytes, and not the {size} that it says")

    return check


def _entries(value: Check) -> Check:
    return _blocks(_sequence([_string, value]))


class BinaryChecks(TypeChecks[Check]):
    _primitives = _PRIMITIVES
    _array, _map = staticmethod(_blocks), staticmethod(_entries)
    _enum, _fixed, _record = staticmethod(_enum), staticmethod(_sized), staticmethod(_sequence)

    def _union(self, branches: Sequence[Any]) -> Check:
        return _union([self.of(branch) for branch in branches])
