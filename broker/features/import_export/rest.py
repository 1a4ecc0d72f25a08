"""Exporting the retained messages of a topic as JSON lines or Avro, and importing them; extensions."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from io import BytesIO
from secrets import token_bytes
from typing import Protocol

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import check_tokens, convert_json, decode_json, decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.errors import encode_error
from broker.api.rest.event_stream import EventStream, while_there
from broker.api.steps import STEP_COST, Steps
from broker.core.log.log_page import MatchedMessage
from broker.core.log.matched_message import matched_message
from broker.core.publishing.rest import MAX_TOKENS, check_objects
from broker.features.import_export.avro_messages import CODECS, MAGIC, MESSAGE, SYNC_BYTES, AvroReader, AvroWriter
from broker.features.import_export.export_service import ExportOptions, ExportService, Pages
from broker.features.import_export.import_service import ImportService
from broker.features.import_export.imports import Part, too_many_messages
from broker.model.errors import BrokerError, InvalidArgument
from broker.model.message import NewMessage
from broker.model.message_id import id_of
from broker.model.publish_limits import MAX_MESSAGES
from broker.net.limits.payload import MAX_PAYLOAD_BYTES, payload_too_large
from broker.observability.timing import timed

_KEEP, _DROP = "KEEP", "DROP"  # what an import does about the time to live of messages
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
        """Returns the last part of an answer that cannot go on; the connection is closed after it."""


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


async def export_topic(service: ExportService, call: Call) -> bytes:
    """Sends pages until there are no more, or the caller leaves, does not read, or loses the permission to read."""
    options, form = decode_export(call.body, token_bytes(SYNC_BYTES))
    async with service.export(call.name, options) as pages:
        stream = EventStream(call, form.content_type)
        stream.begin()
        with timed("messages"):
            await while_there(call.exchange, _send(call, stream, form, pages))
    stream.end()
    return b""


async def _send(call: Call, stream: EventStream, form: ExportForm, pages: Pages) -> None:
    try:
        if (head := form.begin()) and not await stream.send(head):
            return
        async with aclosing(pages):
            async for page in pages:
                pieces = form.pieces(page)
                for piece in pieces if form.quick else await asyncio.to_thread(list, pieces):
                    if not await stream.send(piece):
                        return
    except BrokerError as error:
        if said := form.failure(error):
            await stream.send(said)
        call.exchange.cut_off()  # else one would take what there is for all


async def import_topic(service: ImportService, call: Call) -> bytes:
    if is_avro(call.body):
        part = await _avro_part(call)
    else:
        part = await call.in_steps(decode_part(call.query, call.body))
    imported = await service.import_part(call.name, part, call.body, call.caller.member)
    answer: dict[str, str | bool] = {"messageCount": str(imported.message_count)}
    answer |= {"repeated": True} if imported.repeated else {}
    answer |= {} if imported.expires is None else {"expiry": _KEEP if imported.expires else _DROP}
    return encode_resource(answer)


async def _avro_part(call: Call) -> Part:
    part, unpacked = await asyncio.to_thread(decode_avro_part, call.query, call.body)
    call.hold(max(0, unpacked - len(call.body)))
    return part


# --- JSON ---------------------------------------------------------------------------------------------------


MAX_LINES = 10 * MAX_MESSAGES  # of a part: empty ones are allowed
FORMATS = ("JSON_LINES", "AVRO")


class ExportTopicRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    filter: str = ""
    start_time: str = ""
    end_time: str = ""
    format: str = ""
    codec: str = ""
    topic: object = None  # in the path


_decoder = msgspec.json.Decoder(ExportTopicRequest)
_message = msgspec.json.Decoder(NewMessage)


def decode_export(body: bytes, sync_marker: bytes) -> tuple[ExportOptions, ExportForm]:
    """`sync_marker`: what ends the blocks of a file of Avro.  Raises InvalidArgument."""
    request = decode_request(_decoder, body)
    options = ExportOptions(
        filter=request.filter,
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        end_time=parse_timestamp(request.end_time, "endTime") if request.end_time else None,
    )
    return options, _form(request.format or FORMATS[0], request.codec, sync_marker)


def _form(name: str, codec: str, sync_marker: bytes) -> ExportForm:
    if name not in FORMATS:
        raise InvalidArgument(f"format must be {' or '.join(FORMATS)} (format={name[:100]}).")
    if codec and name != "AVRO":
        raise InvalidArgument(f"codec is for format AVRO (format={name}, codec={codec[:100]}).")
    if codec and codec not in CODECS:
        raise InvalidArgument(f"codec must be {' or '.join(CODECS)} (codec={codec[:100]}).")
    return AvroFile(codec or CODECS[0], sync_marker) if name == "AVRO" else JsonLines()


def is_avro(body: bytes) -> bool:
    """Returns whether a body is a file of Avro.  No line of JSON begins as one does."""
    return body.startswith(MAGIC)


def decode_part(query: Mapping[str, str], body: bytes) -> Steps[Part]:
    """Decodes a part, within the limits of a publish.  Raises InvalidArgument."""
    yield len(body)
    if body.count(b"\n") > MAX_LINES:
        raise InvalidArgument(f"The part has more than {MAX_LINES:,} lines, the maximum.")
    check_objects(body)
    check_tokens(body, MAX_TOKENS)
    messages: list[NewMessage] = []
    decoded = 0
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            messages.append(_decode_line(number, line))
        decoded += len(line)
        if decoded >= STEP_COST:
            yield decoded
            decoded = 0
    return _part(query, messages)


def decode_avro_part(query: Mapping[str, str], body: bytes) -> tuple[Part, int]:
    """Decodes a part, and returns the number of bytes to which it was unpacked.  Raises InvalidArgument."""
    reader = AvroReader(BytesIO(body), MAX_PAYLOAD_BYTES)
    messages: list[NewMessage] = []
    for message in reader:
        if reader.unpacked > MAX_PAYLOAD_BYTES:
            raise payload_too_large()
        if len(messages) == MAX_MESSAGES:
            raise too_many_messages(f"more than {MAX_MESSAGES:,}")
        messages.append(message)
    return _part(query, messages), reader.unpacked


def _part(query: Mapping[str, str], messages: list[NewMessage]) -> Part:
    part = query.get("part", "")
    if not (part.isascii() and part.isdigit() and len(part) < 10):
        raise InvalidArgument(f"part must be the number of this part, from 1 on (part={part[:100]}).")
    expiry = query.get("expiry", _DROP)
    if expiry not in (_KEEP, _DROP):
        raise InvalidArgument(f"expiry must be {_KEEP} or {_DROP} (expiry={expiry[:100]}).")
    import_id = query.get("importId", query.get("import_id", ""))
    return Part(import_id, int(part), messages, expires=expiry == _KEEP)


def _decode_line(number: int, line: bytes) -> NewMessage:
    try:
        return _message.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            return convert_json(decode_json(line), NewMessage)
        except InvalidArgument as error:
            raise InvalidArgument(f"Line {number}: {error.message}") from error
