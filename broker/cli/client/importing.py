"""Lines of JSON into a topic, part by part: each is sent until somebody answers, and is stored once."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from broker.cli.client.api import Api, Json, NotReached, Refused
from broker.cli.stop import Misuse

MOST_LINES, MOST_BYTES = 1_000, 5_000_000  # of a part; a line that is larger goes alone
_TRIES = 8
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 8.0
_PASSING = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED"}


def import_lines(api: Api, topic: str, file: str, import_id: str) -> tuple[int, int]:
    """How many messages there are, and how many of them were stored before.  Raises Misuse, Refused, NotReached."""
    count = repeated = 0
    first = 1
    for number, lines in enumerate(_parts(file), 1):
        params = {"importId": import_id, "part": number}
        try:
            answer = _send(api, f"{topic}:import", params, b"".join(lines))
        except Refused as error:
            where = f"{error.reason.rstrip('.')} (of the part that begins with line {first} of {_named(file)})"
            raise Refused(error.status, where, what_next=_goes_on(import_id)) from None
        except NotReached as error:
            raise NotReached(f"{error}{_goes_on(import_id)}") from None
        messages = int(answer["messageCount"])
        count += messages
        repeated += messages if answer.get("repeated") else 0
        first += len(lines)
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


def _parts(file: str) -> Iterator[list[bytes]]:
    """The same for the same lines: a part is known by its number."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as lines:
            yield from _cut(lines)
    except OSError as error:
        raise Misuse(f"--file {file}: {error.strerror or error}") from None


def _cut(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        if not line.strip():
            continue
        if part and (len(part) == MOST_LINES or size + len(line) > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(line if line.endswith(b"\n") else line + b"\n")
        size += len(line)
    if part:
        yield part


def _named(file: str) -> str:
    return "standard input" if file == "-" else file


def _goes_on(import_id: str) -> str:
    return f"; the same lines with --id {import_id} go on, and what is stored is not stored again"
