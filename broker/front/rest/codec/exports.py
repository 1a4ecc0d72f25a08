"""Exports of topics, and parts of imports; an extension."""

from collections.abc import Mapping
from io import BytesIO

import msgspec

from broker.domain.avro_messages import CODECS, MAGIC, AvroReader
from broker.domain.errors import InvalidArgument
from broker.domain.imports import Part, too_many_messages
from broker.domain.message import NewMessage
from broker.domain.payload import MAX_PAYLOAD_BYTES, payload_too_large
from broker.domain.publish_limits import MAX_MESSAGES
from broker.front.rest.codec.export_forms import AvroFile, ExportForm, JsonLines
from broker.front.rest.codec.publish import MAX_TOKENS, check_objects
from broker.front.rest.codec.requests import check_tokens, convert_json, decode_json, decode_request
from broker.front.rest.codec.scalars import parse_timestamp
from broker.front.steps import STEP_COST, Steps
from broker.services.exports import ExportOptions

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
    """No line of JSON begins as a file of Avro does."""
    return body.startswith(MAGIC)


def decode_part(query: Mapping[str, str], body: bytes) -> Steps[Part]:
    """Within the bounds of a publish.  Raises InvalidArgument."""
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
    """With how many bytes it was unpacked to.  Raises InvalidArgument."""
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
    return Part(query.get("importId", query.get("import_id", "")), int(part), messages)


def _decode_line(number: int, line: bytes) -> NewMessage:
    try:
        return _message.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            return convert_json(decode_json(line), NewMessage)
        except InvalidArgument as error:
            raise InvalidArgument(f"Line {number}: {error.message}") from error
