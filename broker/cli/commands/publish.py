"""`broker publish`."""

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.delays import AT, DELAY, TTL, attributes_of, check_delayed, check_expiring, life_of
from broker.client.files import open_file, read_bytes, read_lines
from broker.client.json_text import NotJson, parse_json
from broker.client.output import Output
from broker.client.priorities import PRIORITY, check_prioritized, prioritized, urgency_of
from broker.client.stop import Misuse
from broker.client.words import as_typed, pairs

_FIELDS = {"data", "text", "attributes", "orderingKey", "priority"}
_IGNORED = {"messageId", "publishTime", "dataSize"}  # which a message has that was printed by another command
_MOST = 1000  # of a publish, by Google's limits
_MOST_BYTES = 5_000_000
_MOST_LINE_BYTES = 20_000_000  # more than the largest message takes in base64
_MOST_LIST_BYTES = 500_000_000  # of a list of messages, which is read as a whole


@calling(
    "publish",
    "broker publish orders 'one order' --attribute env=prod",
    "seq 3 | broker publish orders --rate 100",
    "broker peek billing --json | broker publish orders --input json",
    "broker publish reminders 'Call them back.' --delay 1h",
    "broker publish prices 12.40 --ttl 30s",
    "broker publish alarms 'The cellar is wet.' --priority 0",
)
@click.argument("topic")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Of each message; repeatable.")
@click.option("--ordering-key", metavar="KEY", help="Of each message.")
@click.option(
    "--file", "files", metavar="FILE", multiple=True, help="Read from it; - is standard input. Repeatable."
)
@click.option(
    "--input",
    "form",
    type=click.Choice(["lines", "json", "whole"]),
    default="lines",
    show_default=True,
    help="lines: each is a message; json: each is one as the API has it, with `data` or `text`, and a `priority` "
    "if it has one; whole: a file is.",
)
@click.option("--rate", metavar="N", type=click.FloatRange(0.001), help="So many messages a second at the most.")
@click.option("--batch", metavar="N", type=click.IntRange(1, _MOST), default=100, show_default=True)
@DELAY
@AT
@TTL
@PRIORITY
def publish(
    session: Session,
    *,
    topic: str,
    texts: tuple[str, ...],
    attributes: tuple[str, ...],
    ordering_key: str | None,
    files: tuple[str, ...],
    form: str,
    rate: float | None,
    batch: int,
    ttl: str | None,
    priority: int | None,
    **when: str | None,
) -> int:
    """Publish each TEXT on a topic, or what is in files or on standard input; prints the ids.

    What was printed before a failure is published; the rest is not, but for a call without an answer.
    """
    if texts and files:
        raise Misuse("give texts or --file, not both")
    later = attributes_of(**when)
    urgency = {} if priority is None else urgency_of(priority, "--priority")
    given = pairs(attributes, "--attribute") | later | life_of(ttl) | urgency
    each: Json = {"attributes": given} if given else {}
    each |= {"orderingKey": ordering_key} if ordering_key else {}
    found = iter([_message(as_typed(text)) for text in texts]) if texts else _read(files or ("-",), form)
    name = session.topic(topic)
    for check in _checks(later, ttl, urgency):
        check(session, name)
    found = prioritized(session, name, found)
    pace = _Pace(rate)
    for messages in _batches((_with(each, message) for message in found), pace.batch(batch)):
        pace.wait_for(len(messages))
        answer = session.api.call("POST", f"{name}:publish", {"messages": messages})
        _print_ids(session.out, answer)
    return 0


COMMANDS = publish


def _print_ids(out: Output, answer: Json) -> None:
    ids, repeats = answer["messageIds"], answer.get("repeats", [])
    for index, id_ in enumerate(ids):
        repeated = {"repeated": True} if index in repeats else {}
        out.row({"messageId": id_, **repeated}, id_)
    if repeats:
        first = f"message {ids[repeats[0]]}"
        summary = (
            f"{first} was published before, and not stored again"
            if len(ids) == 1
            else (
                f"{len(repeats):,} of {len(ids):,} messages were published before, and not stored again: {first}"
                f"{', …' if len(repeats) > 1 else ''}"
            )
        )
        out.note(f"Repeated: {summary}.")


def _checks(later: Json, ttl: str | None, urgency: Json) -> list[Callable[[Session, str], None]]:
    """Returns the checks that the topic supports the given options: without that, they would be mere attributes."""
    wanted = ((check_delayed, later), (check_expiring, ttl), (check_prioritized, urgency))
    return [check for check, said in wanted if said]


@dataclass(slots=True)
class _Pace:
    """The pace of publishes: so many messages a second, from the first one on."""

    rate: float | None
    began: float = 0.0
    count: int = 0

    def batch(self, most: int) -> int:
        """Small enough for ten publishes a second."""
        return most if self.rate is None else max(1, min(most, int(self.rate / 10)))

    def wait_for(self, more: int) -> None:
        if self.rate is None:
            return
        self.began = self.began or time.monotonic()
        ahead = self.began + self.count / self.rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        self.count += more


def _batches(messages: Iterator[Json], most: int) -> Iterator[list[Json]]:
    while batch := list(islice(messages, most)):
        part: list[Json] = []
        size = 0
        for message in batch:
            size += len(message.get("data", ""))
            if part and size > _MOST_BYTES:
                yield part
                part, size = [], len(message.get("data", ""))
            part.append(message)
        yield part


def _read(files: tuple[str, ...], form: str) -> Iterator[Json]:
    """Raises Misuse."""
    for file in files:
        where = "standard input" if file == "-" else file
        if form == "whole":
            yield _message(read_bytes(file, "--file", most=_MOST_LINE_BYTES))
            continue
        with open_file(file, "--file") as opened:
            if form == "json":
                yield from _documents(opened, where)
            else:
                lines = read_lines(opened, where, most=_MOST_LINE_BYTES)
                yield from (_message(text) for line in lines if (text := line.rstrip(b"\r\n")))


def _documents(opened: BinaryIO, where: str) -> Iterator[Json]:
    """A message in each line, or a list of them, as `peek`, `pull` and `topic browse` print it."""
    lines = read_lines(opened, where, most=_MOST_LINE_BYTES)
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(b"["):
            rest = opened.read(_MOST_LIST_BYTES)
            if len(rest) == _MOST_LIST_BYTES:
                raise Misuse(
                    f"{where} has a list of {_MOST_LIST_BYTES:,} bytes or more: give a message in each line"
                )
            for one in _loaded(line + rest, where):
                yield _checked(one, where)
        elif line.strip():
            at = f"line {number} of {where}"
            yield _checked(_loaded(line, at), at)


def _loaded(text: bytes, where: str) -> Any:
    try:
        return parse_json(text, sendable=True)
    except NotJson as error:
        raise Misuse(f"{where} is not JSON: {error}") from None


def _checked(given: Any, where: str) -> Json:
    message = given.get("message", given) if isinstance(given, dict) else None
    if not isinstance(message, dict):
        raise Misuse(f'{where} has no message, such as {{"text": "…", "attributes": {{"env": "prod"}}}}')
    if unknown := set(message) - _FIELDS - _IGNORED:
        raise Misuse(f"{where} has {sorted(unknown)[0]!r}; a message has {', '.join(sorted(_FIELDS))}")
    size = message.get("dataSize", given.get("dataSize"))
    if size is not None and size != len(base64.b64decode(message.get("data", ""))):
        raise Misuse(f"{where} has only the beginning of a message of {size} bytes: list it without --preview")
    if "priority" in message:
        urgency_of(message["priority"], where)
    rest = {name: value for name, value in message.items() if name in _FIELDS - {"text"}}
    return rest | _message(str(message["text"]).encode()) if "text" in message else rest


def _message(body: bytes) -> Json:
    return {"data": base64.b64encode(body).decode("ascii")}


def _with(each: Json, message: Json) -> Json:
    attributes = each.get("attributes", {}) | message.get("attributes", {})
    return each | message | ({"attributes": attributes} if attributes else {})
