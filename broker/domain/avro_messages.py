"""Messages in Avro's object container files: a schema, and blocks of records that a marker ends.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files

Names and types of fields are those of the files that Google's Cloud Storage subscriptions write with metadata.
fastavro writes files and reads records.  It is not given blocks and schemas of others as they are: it unpacks a
block however large that gets, and a schema that is nested too deep ends the process.
"""

import json
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

import fastavro
from fastavro.write import Writer

from broker.domain.errors import InvalidArgument
from broker.domain.message import NewMessage

MAGIC = b"Obj\x01"  # a file begins with it
CODECS = ("NULL", "DEFLATE")
SYNC_BYTES = 16

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
_METADATA = fastavro.parse_schema({"type": "map", "values": "bytes"})
_UNREADABLE = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, TypeError, ValueError)


class AvroWriter:
    """Makes a file, which is taken piece by piece as it grows."""

    def __init__(self, schema: dict[str, Any], codec: str, sync_marker: bytes) -> None:
        self._file = BytesIO()
        # Blocks end as they are taken, and not where fastavro would end them.
        self._writer = Writer(self._file, schema, codec.lower(), sync_interval=2**62, sync_marker=sync_marker)
        self.add = self._writer.write

    def take(self) -> bytes:
        """What there is of the file since the last time: its head, a block with what was added."""
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
            metadata: Any = fastavro.schemaless_reader(file, _METADATA, None)
            source = json.loads(metadata["avro.schema"])
            self._codec = metadata.get("avro.codec", b"null").decode()
            self._marker = file.read(SYNC_BYTES)
        except (*_UNREADABLE, RecursionError) as error:
            raise InvalidArgument("The head of the Avro file cannot be read.") from error
        if self._codec.upper() not in CODECS:
            raise InvalidArgument(f"The codec of the Avro file must be null or deflate, not {self._codec[:50]}.")
        self._schema = _reading_schema(source)

    def __iter__(self) -> Iterator[NewMessage]:
        """Raises InvalidArgument, with the block and the record of it."""
        while first := self._file.read(1):
            self._count += 1
            records, block = self._block(first)
            for number in range(1, records + 1):
                yield self._message(block, number)
            if block.read(1):
                raise self._broken(f"it has more than the {records} records that it says it has")

    def _block(self, first: bytes) -> tuple[int, BytesIO]:
        try:
            records, size = _read_long(self._file, first), _read_long(self._file, self._file.read(1))
        except _UNREADABLE as error:
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
        return records, BytesIO(block)

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

    def _message(self, block: BytesIO, number: int) -> NewMessage:
        try:
            record: Any = fastavro.schemaless_reader(block, self._schema, None)
        except _UNREADABLE as error:
            reason = (
                "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it is not as the schema says"
            )
            raise self._broken(reason, f", record {number}") from error
        return NewMessage(
            data=record["data"] or b"",
            attributes=record.get("attributes") or {},
            ordering_key=record.get("ordering_key") or "",
        )

    def _broken(self, reason: str, record: str = "") -> InvalidArgument:
        return InvalidArgument(f"Block {self._count}{record} of the Avro file: {reason}.")


def _read_long(file: BinaryIO, byte: bytes) -> int:
    """Raises IndexError at the end of the file, ValueError for what is none."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        byte = file.read(1)
    raise ValueError


def _reading_schema(source: Any) -> Any:
    """That of a file, with nothing in it but the fields of messages: flat, and with plain types."""
    if not isinstance(source, dict) or source.get("type") != "record" or not isinstance(source.get("fields"), list):
        raise InvalidArgument("The schema of the Avro file must be a record.")
    fields: dict[str, Any] = {}
    for field in source["fields"]:
        given = field.get("name") if isinstance(field, dict) else None
        name = _OTHER_NAMES.get(str(given), str(given))
        if name not in _READ or name in fields:
            raise InvalidArgument(
                f"The schema of the Avro file has a field that no message has: {str(given)[:100]!r}. It may have "
                f"{', '.join(_READ)}."
            )
        fields[name] = _plain(field.get("type"))
        if fields[name] not in (_READ[name], ["null", _READ[name]], [_READ[name], "null"]):
            raise InvalidArgument(
                f"The field {name} of the Avro file must be {_named(_READ[name])}, or a union of that and null."
            )
    if "data" not in fields:
        raise InvalidArgument("The schema of the Avro file has no field data, of bytes.")
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return fastavro.parse_schema({"type": "record", "name": "PubsubMessage", "fields": named})


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
