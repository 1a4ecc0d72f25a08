"""PostgreSQL's binary format of the types of parameters in hot statements."""

import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

_INT8 = struct.Struct("!q").pack
_FLOAT8 = struct.Struct("!d").pack
_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
_ARRAY_HEADER = struct.Struct("!iiIii").pack  # dimensions, has nulls, element type, length, lower bound
_ARRAY_OF_ONE = struct.Struct("!iiIiii").pack  # the same, and the length of the element
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_TIMESTAMP = datetime.max.replace(tzinfo=UTC)
_INFINITY = 2**63 - 1

OIDS = {
    "bool": 16,
    "int8": 20,
    "float8": 701,
    "text": 25,
    "timestamptz": 1184,
    "jsonpath": 4072,
    "bool[]": 1000,
    "int8[]": 1016,
    "float8[]": 1022,
    "text[]": 1009,
    "timestamptz[]": 1185,
    "jsonb[]": 3807,
    "bytea[]": 1001,
    "jsonb": 3802,
    "bytea": 17,
    "uuid": 2950,
    "uuid[]": 2951,
    "varbit": 1562,
    "varbit[]": 1563,
}


def _bool(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def encode_timestamptz(moment: datetime) -> bytes:
    return _INT8((moment - _EPOCH) // _MICROSECOND)


def _jsonpath(text: str | None) -> bytes | None:
    return None if text is None else b"\x01" + text.encode()  # 1: the version of the format


def _varbit(bits: str) -> bytes:
    size = len(bits)
    return _LENGTH(size) + (int(bits or "0", 2) << -size % 8).to_bytes((size + 7) // 8, "big")


def array(element_oid: int, elements: Iterable[bytes], length: int) -> bytes:
    """An array from its elements in binary, each with its length before it."""
    return b"".join([_ARRAY_HEADER(1, 1, element_oid, length, 1), *elements])


def _array_of(element_oid: int, encode: Callable[[Any], bytes]) -> Callable[[list[Any]], bytes]:
    empty = array(element_oid, (), 0)

    def encode_array(values: list[Any]) -> bytes:
        if not values:
            return empty
        if len(values) == 1 and values[0] is not None:  # as in most claims, for one subscription
            only = encode(values[0])
            return _ARRAY_OF_ONE(1, 1, element_oid, 1, 1, len(only)) + only
        elements = []
        last, element = None, _NULL
        for value in values:
            if value is not last:  # a column often repeats one value
                last = value
                encoded = encode(value) if value is not None else None
                element = _NULL if encoded is None else _LENGTH(len(encoded)) + encoded
            elements.append(element)
        return array(element_oid, elements, len(values))

    return encode_array


def _array_of_8_bytes(
    element_oid: int, encode: Callable[[Any], bytes], as_ints: Callable[[list[Any]], Iterable[int]]
) -> Callable[[list[Any]], bytes]:
    """Returns an encoder of arrays whose values are int8 to PostgreSQL: without a null they are packed at once."""
    encode_each = _array_of(element_oid, encode)

    def encode_array(values: list[Any]) -> bytes:
        if None in values:
            return encode_each(values)
        length = len(values)
        elements = [8] * (2 * length)
        elements[1::2] = as_ints(values)
        return struct.pack("!iiIii" + "iq" * length, 1, 1, element_oid, length, 1, *elements)

    return encode_array


def _microseconds(moments: list[datetime]) -> Iterator[int]:
    last, number = None, 0
    for moment in moments:
        if moment is not last:  # a column often repeats one value
            last, number = moment, (moment - _EPOCH) // _MICROSECOND
        yield number


encode_int8s = _array_of_8_bytes(OIDS["int8"], _INT8, list)

# Encoders by type, from a value of the store to its binary form.  None: the value is passed in that form, or is
# null.  jsonb[], bytea[] and uuid[] are packed in core/log.
ENCODERS: dict[str, Callable[[Any], bytes | None] | None] = {
    "bool": _bool,
    "int8": _INT8,
    "float8": _FLOAT8,
    "text": str.encode,
    "timestamptz": encode_timestamptz,
    "jsonpath": _jsonpath,
    "bytea": None,
    "bool[]": _array_of(OIDS["bool"], _bool),
    "int8[]": encode_int8s,
    "float8[]": _array_of(OIDS["float8"], _FLOAT8),
    "text[]": _array_of(OIDS["text"], str.encode),
    "timestamptz[]": _array_of_8_bytes(OIDS["timestamptz"], encode_timestamptz, _microseconds),
    "varbit[]": _array_of(OIDS["varbit"], _varbit),
    "packed text": None,
    "packed jsonb": None,
    "packed timestamptz": None,
    "packed text[]": None,
    "packed jsonb[]": None,
    "packed bytea[]": None,
    "packed uuid[]": None,
}
