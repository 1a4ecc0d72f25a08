"""Imports lines of JSON, or an Avro file, into a topic, in parts.  Each part is sent until there is an answer, and
is stored once.
"""

import time
from collections.abc import Iterator
from hashlib import sha256
from io import BufferedReader
from typing import NamedTuple

from broker.client.api import Api, Json, NotReached, Refused
from broker.client.files import open_file, read_lines
from broker.client.stop import Misuse
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage

MOST_MESSAGES, MOST_BYTES = 1_000, 5_000_000  # of a part; a message that is larger goes alone
_MOST_LINE_BYTES = 20_000_000  # more than the largest message takes in base64
_MOST_BLOCK_BYTES = 268_435_456  # of a file of Avro: one is held at a time
_AVRO = b"Obj\x01"
_TRIES = 8
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 8.0
_PASSING = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED"}


class _Part(NamedTuple):
    messages: int
    body: bytes


def import_messages(api: Api, topic: str, file: str, import_id: str, **options: str) -> tuple[int, int]:
    """Import a file, with further query parameters for each part.

    Returns how many messages there are, and how many of them were stored before.  Raises Misuse, Refused,
    NotReached.
    """
    count = repeated = 0
    for number, part in enumerate(_parts(file, import_id), 1):
        params = {"importId": import_id, "part": number, **options}
        try:
            answer = _send(api, f"{topic}:import", params, part.body)
        except Refused as error:
            where = (
                f"{error.reason.rstrip('.')} (of the part that begins with message {count + 1} of {_named(file)})"
            )
            raise Refused(error.status, where, what_next=_goes_on(import_id)) from None
        except NotReached as error:
            raise NotReached(f"{error}{_goes_on(import_id)}") from None
        messages = int(answer["messageCount"])
        count += messages
        repeated += messages if answer.get("repeated") else 0
    return count, repeated


def _send(api: Api, path: str, params: Json, body: bytes) -> Json:
    pause = _PAUSE_SECONDS
    for _ in range(_TRIES - 1):
        try:
            return api.call("POST", path, params=params, content=body)
        except (Refused, NotReached) as error:
            if isinstance(error, Refused) and error.status not in _PASSING:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return api.call("POST", path, params=params, content=body)


def _parts(file: str, import_id: str) -> Iterator[_Part]:
    """The same for the same messages: a part is known by its number."""
    try:
        with open_file(file, "--file") as content:
            is_avro = content.peek(len(_AVRO)).startswith(_AVRO)
            yield from _avro_parts(content, import_id) if is_avro else _line_parts(content, file)
    except InvalidArgument as error:
        raise Misuse(f"--file {file}: {error.message}{_goes_on(import_id)}") from None


def _line_parts(content: BufferedReader, file: str) -> Iterator[_Part]:
    part: list[bytes] = []
    size = 0
    for line in read_lines(content, _named(file), most=_MOST_LINE_BYTES):
        if not line.strip():
            continue
        if part and (len(part) == MOST_MESSAGES or size + len(line) > MOST_BYTES):
            yield _Part(len(part), b"".join(part))
            part, size = [], 0
        part.append(line if line.endswith(b"\n") else line + b"\n")
        size += len(line)
    if part:
        yield _Part(len(part), b"".join(part))


def _avro_parts(file: BufferedReader, import_id: str) -> Iterator[_Part]:
    """Yields parts, each of which is a file of its own.  Raises InvalidArgument."""
    from broker.features.import_export.avro_messages import AvroReader

    part: list[NewMessage] = []
    size = number = 0
    for message in AvroReader(file, _MOST_BLOCK_BYTES):
        of_message = len(message.data) + sum(map(len, (*message.attributes, *message.attributes.values())))
        if part and (len(part) == MOST_MESSAGES or size + of_message > MOST_BYTES):
            number += 1
            yield _avro_part(part, import_id, number)
            part, size = [], 0
        part.append(message)
        size += of_message
    if part:
        yield _avro_part(part, import_id, number + 1)


def _avro_part(messages: list[NewMessage], import_id: str, number: int) -> _Part:
    """The same bytes each time: not compressed, as versions of zlib differ, and with a marker that is not drawn."""
    from broker.features.import_export.avro_messages import NEW_MESSAGE, SYNC_BYTES, AvroWriter

    marker = sha256(f"{import_id}/{number}".encode()).digest()[:SYNC_BYTES]
    writer = AvroWriter(NEW_MESSAGE, "NULL", marker)
    for message in messages:
        writer.add({"ordering_key": message.ordering_key, "attributes": message.attributes, "data": message.data})
    return _Part(len(messages), writer.take())


def _named(file: str) -> str:
    return "standard input" if file == "-" else file


def _goes_on(import_id: str) -> str:
    return f"; the same messages with --id {import_id} go on, and what is stored is not stored again"
