"""What an export is written in: lines of JSON, each a google.pubsub.v1.PubsubMessage, or Avro; an extension."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from broker.domain.avro_messages import MESSAGE, AvroWriter
from broker.domain.errors import BrokerError
from broker.domain.log_page import MatchedMessage
from broker.domain.message_id import id_of
from broker.front.rest.codec.filters import matched_message
from broker.front.rest.errors import encode_error

PIECE_BYTES = 262_144  # about, that are written at a time: so much must be taken before the next
_RECORD_BYTES = 50  # of a record, about, besides its texts and data

_encode = msgspec.json.Encoder().encode
_attributes = msgspec.json.Decoder(dict[str, str])


class ExportForm(Protocol):
    """`quick`: a piece takes so little time that it needs no thread."""

    content_type: bytes
    quick: bool

    def begin(self) -> bytes: ...

    def pieces(self, messages: Sequence[MatchedMessage]) -> Iterator[bytes]: ...

    def failure(self, error: BrokerError) -> bytes:
        """What is said last when it cannot go on; the answer is cut off behind it."""


class JsonLines:
    """Pieces are of whole lines."""

    content_type = b"application/jsonl"
    quick = True

    def begin(self) -> bytes:
        return b""

    def pieces(self, messages: Sequence[MatchedMessage]) -> Iterator[bytes]:
        lines: list[bytes] = []
        size = 0
        for message in messages:
            lines.append(_encode(matched_message(message)) + b"\n")
            size += len(lines[-1])
            if size >= PIECE_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)

    def failure(self, error: BrokerError) -> bytes:
        return _encode(msgspec.json.decode(encode_error(error).body)) + b"\n"


class AvroFile:
    """Pieces are the head, and whole blocks."""

    content_type = b"application/avro"

    def __init__(self, codec: str, sync_marker: bytes) -> None:
        self.quick = codec == "NULL"
        self._writer = AvroWriter(MESSAGE, codec, sync_marker)

    def begin(self) -> bytes:
        return self._writer.take()

    def pieces(self, messages: Sequence[MatchedMessage]) -> Iterator[bytes]:
        size = 0
        for message in messages:
            data = message.data or b""
            self._writer.add(
                {
                    "message_id": id_of(message.shard_id, message),
                    "publish_time": message.publish_time,
                    "ordering_key": message.ordering_key or "",
                    "attributes": _attributes.decode(message.attributes),
                    "data": data,
                }
            )
            size += len(data) + len(message.attributes) + _RECORD_BYTES
            if size >= PIECE_BYTES:
                yield self._writer.take()
                size = 0
        if size:
            yield self._writer.take()

    def failure(self, error: BrokerError) -> bytes:
        """A block that says so would be one of messages."""
        return b""
