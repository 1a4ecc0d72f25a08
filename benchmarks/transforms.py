"""What transforms cost: the same messages with and without them, by turns on one broker."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from benchmarks.bench import Bench, Place, call_each, fresh_place, say
from benchmarks.report import Row
from benchmarks.schemas import take_records
from benchmarks.servers import Server
from benchmarks.side_by_side import Side, Take, side_by_side, take_drain, take_lone_publish, take_publish
from benchmarks.wire import LoadFailed, build_request

CODE = "function mark(message) { message.attributes.seen = 'yes'; return message; }"
_TRANSFORM = {"javascriptUdf": {"functionName": "mark", "code": CODE}}
_ZLIB = {"compression": {"compressionAlgorithm": "ZLIB", "compressionMode": "COMPRESS"}}

_KINDS: list[tuple[str, str, object, list[Take]]] = [
    ("topic", "a function", _TRANSFORM, [take_records("JSON", None)]),
    ("topic", "zlib", _ZLIB, [take_publish, take_lone_publish]),
    ("subscription", "zlib", _ZLIB, [take_drain]),
]


def transforms(bench: Bench) -> list[Row]:
    """Of a topic by a function (JSON of 120 bytes) and by zlib (750 bytes); of a subscription by zlib."""
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
