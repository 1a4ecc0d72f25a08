"""What transforms cost: the same messages with and without them, by turns on one broker.

And what they cost those who have none: a plain topic of a broker whose other topics have transforms, and of one
whose others are plain too.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from benchmarks.bench import Bench, Place, call_each, fresh_place, say
from benchmarks.report import Row
from benchmarks.schemas import beside_others, take_records
from benchmarks.servers import Server
from benchmarks.side_by_side import Side, Take, side_by_side, take_drain, take_lone_publish, take_publish
from benchmarks.wire import LoadFailed, build_request

CODE = "function mark(message) { message.attributes.seen = 'yes'; return message; }"
_TRANSFORM = {"javascriptUdf": {"functionName": "mark", "code": CODE}}
_ZLIB = {"compression": {"compressionAlgorithm": "ZLIB", "compressionMode": "COMPRESS"}}

_FIELDS = {"fields": {"set": {"attributes.seen": "yes"}}}
_OTHERS = 1_000  # topics with a transform, each with a subscription that has one

_KINDS: list[tuple[str, str, object, list[Take]]] = [
    ("topic", "a function", _TRANSFORM, [take_records("JSON", None)]),
    ("topic", "fields", _FIELDS, [take_records("JSON", None)]),
    ("topic", "zlib", _ZLIB, [take_publish, take_lone_publish]),
    ("subscription", "zlib", _ZLIB, [take_drain]),
]


def transforms(bench: Bench) -> list[Row]:
    """By a function and by fields of a topic (JSON of 120 bytes); by zlib of a topic and of a subscription."""
    rows: list[Row] = []
    try:
        bench.use(bench.broker)
        without = Side(bench.broker, partial(fresh_place, bench.broker))
        for kind, words, transform, takes in _KINDS:
            carrying = Side(bench.broker, _place_with(bench.broker, kind, transform))
            rows += side_by_side(bench, takes, without, carrying, f"{words} of a {kind}")
    except LoadFailed as error:
        say(f"transforms: FAILED: {error}")
        return [Row(measure="transforms", unit="", error=f"broker: {error}")]
    for row in rows:
        row.mark = None
    return rows


def transforms_of_others(bench: Bench) -> list[Row]:
    """Plain topics of two brokers: other topics of one have transforms, and their subscriptions."""
    return beside_others(bench, "with transforms on other topics", _make_transforms)


def _make_transforms(server: Server, carrying: bool) -> None:
    say(f"making {_OTHERS:,} topics and a subscription to each, {'with a transform' if carrying else 'plain ones'}")
    fields: dict[str, object] = {"messageTransforms": [_TRANSFORM]} if carrying else {}
    made = []
    for number in range(_OTHERS):
        topic = f"projects/others/topics/orders-{number}"
        made.append(build_request("PUT", f"/v1/{topic}", json.dumps(fields).encode()))
        wanted = json.dumps(fields | {"topic": topic}).encode()
        made.append(build_request("PUT", f"/v1/projects/others/subscriptions/orders-{number}", wanted))
    call_each(server, made)


def _place_with(server: Server, kind: str, transform: object) -> Callable[[], AbstractContextManager[Place]]:
    """A fresh topic and subscription, one of which has the transform."""

    @contextmanager
    def place() -> Iterator[Place]:
        with fresh_place(server) as found:
            name = found.topic if kind == "topic" else found.subscriptions[0]
            body = {kind: {"name": name, "messageTransforms": [transform]}, "updateMask": "messageTransforms"}
            call_each(server, [build_request("PATCH", f"/v1/{name}", json.dumps(body).encode())])
            yield found

    return place
