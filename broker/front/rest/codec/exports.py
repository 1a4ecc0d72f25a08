"""Messages of a topic as JSON lines, each as google.pubsub.v1.PubsubMessage; an extension."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from broker.domain.errors import BrokerError, InvalidArgument
from broker.domain.imports import Part
from broker.domain.log_page import MatchedMessage
from broker.domain.message import NewMessage
from broker.front.rest.codec.filters import matched_message
from broker.front.rest.codec.requests import convert_json, decode_json, decode_request
from broker.front.rest.codec.scalars import parse_timestamp
from broker.front.rest.errors import encode_error
from broker.services.exports import ExportOptions

PIECE_BYTES = 262_144  # about, that are written at a time: so much must be taken before the next


class ExportTopicRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    filter: str = ""
    start_time: str = ""
    end_time: str = ""
    topic: object = None  # in the path


_decoder = msgspec.json.Decoder(ExportTopicRequest)
_message = msgspec.json.Decoder(NewMessage)
_encode = msgspec.json.Encoder().encode


def decode_export(body: bytes) -> ExportOptions:
    """Raises InvalidArgument."""
    request = decode_request(_decoder, body)
    return ExportOptions(
        filter=request.filter,
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        end_time=parse_timestamp(request.end_time, "endTime") if request.end_time else None,
    )


def encode_lines(messages: Sequence[MatchedMessage]) -> Iterator[bytes]:
    """Pieces of whole lines."""
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


def encode_failure_line(error: BrokerError) -> bytes:
    """The last line of an export that cannot go on; the answer is cut off behind it."""
    return _encode(msgspec.json.decode(encode_error(error).body)) + b"\n"


def decode_part(query: Mapping[str, str], body: bytes) -> Part:
    """Raises InvalidArgument."""
    part = query.get("part", "")
    if not (part.isascii() and part.isdigit() and len(part) < 10):
        raise InvalidArgument(f"part must be the number of this part, from 1 on (part={part[:100]}).")
    messages = [_decode_line(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    return Part(query.get("importId", query.get("import_id", "")), int(part), messages)


def _decode_line(number: int, line: bytes) -> NewMessage:
    try:
        return _message.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            return convert_json(decode_json(line), NewMessage)
        except InvalidArgument as error:
            raise InvalidArgument(f"Line {number}: {error.message}") from error
