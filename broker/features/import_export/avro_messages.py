"""Messages in Avro's object container files: a schema, and blocks of records that end with a marker.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files

The names and types of fields are those of the files that Google's Cloud Storage subscriptions write with metadata.
fastavro writes files.  Files of other programs are parsed here, because fastavro has three problems: it
decompresses a block whatever its size, a schema with too deep nesting crashes the process, and no other thread runs
while it reads a map of millions of entries, for which a few compressed bytes are enough.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, BinaryIO

from fastavro.write import Writer

from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.publish_limits import MAX_ATTRIBUTES

MAGIC = b"Obj\x01"  # a file begins with it
CODECS = ("NULL", "DEFLATE")
SYNC_BYTES = 16
MAX_HEAD_BYTES = 65_536  # of the file's metadata; an export has 500
_MAX_METADATA = 100  # entries
_MAX_LONG_BYTES = 10

_TIME = {"type": "long", "logicalType": "timestamp-micros"}
_MAP = {"type": "map", "values": "string"}
_NEW = [
    {"name": "ordering_key", "type": "string", "default": ""},
    {"name": "attributes", "type": _MAP},
    {"name": "data", "type": "bytes"},
]
NEW_MESSAGE = {"type": "record", "name": "PubsubMessage", "fields": _NEW}
MESSAGE = NEW_MESSAGE | {
    "fields": [{"name": "message_id", "type": "string"}, {"name": "publish_time", "type": _TIME}, *_NEW]
}

_READ = {  # what a file may have
    "subscription_name": "string",
    "message_id": "string",
    "publish_time": "long",
    "ordering_key": "string",
    "attributes": _MAP,
    "data": "bytes",
}
_OTHER_NAMES = {"messageId": "message_id", "publishTime": "publish_time", "orderingKey": "ordering_key"}
# Reads the value that begins at a position of a block.  Returns the value and the position after it.
_Reader = Callable[[bytes, int], tuple[Any, int]]


class AvroWriter:
    """Makes a file, which is taken piece by piece as it grows."""

    def __init__(self, schema: dict[str, Any], codec: str, sync_marker: bytes) -> None:
        self._file = BytesIO()
        # Blocks end as they are taken, and not where fastavro would end them.
        self._writer = Writer(self._file, schema, codec.lower(), sync_interval=2**62, sync_marker=sync_marker)
        self.add = self._writer.write

    def take(self) -> bytes:
        """Returns the part of the file that was written since the last call.

        It is the head of the file, or a block with the added messages.
        """
        self._writer.flush()
        piece = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return piece


class AvroReader:
    """The messages of a file, in order, whatever wrote it; it holds a block at a time."""

    def __init__(self, file: BinaryIO, most_bytes: int) -> None:
        """`most_bytes`: of one block, unpacked.  Raises InvalidArgument for what is no such file of messages."""
        self._file = file
        self._most_bytes = most_bytes
        self._count = 0
        self.unpacked = 0  # bytes of all blocks so far
        try:
            if file.read(len(MAGIC)) != MAGIC:
                raise InvalidArgument("It does not begin as an Avro file does.")
            metadata = _read_metadata(file)
            source = json.loads(metadata["avro.schema"])
            self._codec = metadata.get("avro.codec", b"null").decode()
            self._marker = file.read(SYNC_BYTES)
        except (LookupError, ValueError, RecursionError) as error:
            raise InvalidArgument("The head of the Avro file cannot be read.") from error
        if self._codec.upper() not in CODECS:
            raise InvalidArgument(f"The codec of the Avro file must be null or deflate, not {self._codec[:50]}.")
        self._fields = _fields_of(source)

    def __iter__(self) -> Iterator[NewMessage]:
        """Raises InvalidArgument, with the block and the record of it."""
        while first := self._file.read(1):
            self._count += 1
            records, block = self._block(first)
            at = 0
            for number in range(1, records + 1):
                message, at = self._message(block, at, number)
                yield message
            if at < len(block):
                raise self._broken(f"it has more than the {records} records that it says it has")

    def _block(self, first: bytes) -> tuple[int, bytes]:
        try:
            records, size = _read_long(self._file, first), _read_long(self._file)
        except (LookupError, ValueError) as error:
            raise self._broken("its length cannot be read") from error
        if records < 1 or size < 0:
            raise self._broken("it has no record")
        if size > self._most_bytes:
            raise self._broken(f"it is larger than {self._most_bytes} bytes")
        packed = self._file.read(size)
        if len(packed) < size or len(marker := self._file.read(SYNC_BYTES)) < SYNC_BYTES:
            raise self._broken("it ends too early")
        if marker != self._marker:
            raise self._broken("it does not end with the file's sync marker")
        block = packed if self._codec == "null" else self._inflated(packed)
        self.unpacked += len(block)
        return records, block

    def _inflated(self, packed: bytes) -> bytes:
        reading = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            block = reading.decompress(packed, self._most_bytes + 1)
        except zlib.error as error:
            raise self._broken("it is not compressed by deflate") from error
        if len(block) > self._most_bytes:
            raise self._broken(f"it is larger than {self._most_bytes} bytes, unpacked")
        if not reading.eof:
            raise self._broken("what is compressed in it ends too early")
        return block

    def _message(self, block: bytes, at: int, number: int) -> tuple[NewMessage, int]:
        record: dict[str, Any] = {}
        try:
            for name, read in self._fields:
                record[name], at = read(block, at)
        except _TooMany as error:
            raise self._broken(f"it has more than {MAX_ATTRIBUTES} attributes", f", record {number}") from error
        except (LookupError, ValueError) as error:
            reason = (
                "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it is not as the schema says"
            )
            raise self._broken(reason, f", record {number}") from error
        message = NewMessage(
            data=record["data"] or b"",
            attributes=record.get("attributes") or {},
            ordering_key=record.get("ordering_key") or "",
        )
        return message, at

    def _broken(self, reason: str, record: str = "") -> InvalidArgument:
        return InvalidArgument(f"Block {self._count}{record} of the Avro file: {reason}.")


def _read_long(file: BinaryIO, first: bytes | None = None) -> int:
    """Reads a long from a file.  `first`: its first byte, if that is read already.

    Raises IndexError at the end of the file, ValueError for a long of too many bytes.
    """
    number = bytearray(file.read(1) if first is None else first)
    while number[-1] >= 0x80 and len(number) < _MAX_LONG_BYTES:
        number.append(file.read(1)[0])
    return _long_at(number, 0)[0]


def _read_metadata(file: BinaryIO) -> dict[str, bytes]:
    """Raises LookupError if the file ends early, ValueError without metadata, InvalidArgument for too much."""
    metadata: dict[str, bytes] = {}
    left = MAX_HEAD_BYTES
    entries = 0
    while count := _read_long(file):
        if count < 0:  # then the size of these entries follows
            count = -count
            _read_long(file)
        entries += count
        if entries > _MAX_METADATA:
            raise ValueError
        for _ in range(count):
            pair = []
            for _ in range(2):
                size = _read_long(file)
                left -= size
                if size < 0 or left < 0:
                    raise InvalidArgument(f"The head of the Avro file is larger than {MAX_HEAD_BYTES} bytes.")
                pair.append(file.read(size))
                if len(pair[-1]) < size:
                    raise LookupError
            metadata[pair[0].decode()] = pair[1]
    return metadata


def _fields_of(source: Any) -> list[tuple[str, _Reader]]:
    """Returns a reader for each field of a file's records.  Records may only have the fields of messages."""
    if not isinstance(source, dict) or source.get("type") != "record" or not isinstance(source.get("fields"), list):
        raise InvalidArgument("The schema of the Avro file must be a record.")
    fields: dict[str, _Reader] = {}
    for field in source["fields"]:
        given = field.get("name") if isinstance(field, dict) else None
        name = _OTHER_NAMES.get(str(given), str(given))
        if name not in _READ or name in fields:
            raise InvalidArgument(
                f"The schema of the Avro file has a field that no message has: {str(given)[:100]!r}. It may have "
                f"{', '.join(_READ)}."
            )
        kind, wanted = _plain(field.get("type")), _READ[name]
        read = _READERS["map" if wanted is _MAP else wanted]
        if kind == wanted:
            fields[name] = read
        elif kind in (["null", wanted], [wanted, "null"]):
            fields[name] = _or_null(read, kind.index("null"))
        else:
            raise InvalidArgument(
                f"The field {name} of the Avro file must be {_named(wanted)}, or a union of that and null."
            )
    if "data" not in fields:
        raise InvalidArgument("The schema of the Avro file has no field data, of bytes.")
    return list(fields.items())


class _TooMany(Exception):
    """Attributes, for a message."""


def _long_at(block: bytes | bytearray, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _MAX_LONG_BYTES, 7):
        byte = block[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError


def _bytes_at(block: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long_at(block, at)
    if not 0 <= size <= len(block) - at:
        raise ValueError
    return block[at : at + size], at + size


def _text_at(block: bytes, at: int) -> tuple[str, int]:
    text, at = _bytes_at(block, at)
    return text.decode(), at


def _attributes_at(block: bytes, at: int) -> tuple[dict[str, str], int]:
    attributes: dict[str, str] = {}
    entries = 0
    while True:
        count, at = _long_at(block, at)
        if not count:
            return attributes, at
        if count < 0:  # then the size of these entries follows
            count = -count
            _, at = _long_at(block, at)
        entries += count
        if entries > MAX_ATTRIBUTES:
            raise _TooMany
        for _ in range(count):
            key, at = _text_at(block, at)
            attributes[key], at = _text_at(block, at)


_READERS: dict[Any, _Reader] = {"string": _text_at, "long": _long_at, "bytes": _bytes_at, "map": _attributes_at}


def _or_null(read: _Reader, null: int) -> _Reader:
    """Returns a reader for a union of null and what `read` reads; `null` is the index of null in the union."""

    def read_or_null(block: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long_at(block, at)
        if branch == null:
            return None, at
        if branch != 1 - null:
            raise ValueError
        return read(block, at)

    return read_or_null


def _plain(kind: Any, depth: int = 0) -> Any:
    """A type without what else is said of it; what is nested deeper is none of ours."""
    if depth > 3:
        return None
    if isinstance(kind, list):
        return [_plain(branch, depth + 1) for branch in kind[:3]]
    if not isinstance(kind, dict):
        return kind
    if kind.get("type") == "map":
        return {"type": "map", "values": _plain(kind.get("values"), depth + 1)}
    return _plain(kind.get("type"), depth + 1)


def _named(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"a map of {kind['values']}"
