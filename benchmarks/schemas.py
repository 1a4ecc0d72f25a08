"""What a topic's schema costs: the same messages to a topic with one and to one without, by turns on one broker.

And what schemas cost those who have none: a plain topic of a broker whose other topics have schemas, and of one
whose others are plain too.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from benchmarks.bench import Bench, Place, call_each, fresh_place, say, take_sample
from benchmarks.calls import RECORD
from benchmarks.generators import run_loads, throughput
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.side_by_side import (
    Figure,
    Side,
    Take,
    Taken,
    side_by_side,
    take_drain,
    take_lone_publish,
    take_publish,
)
from benchmarks.throughput import publish_specs
from benchmarks.wire import LoadFailed, build_request

_PUBLISH_MARK = 0.6
_SAME = 0.98
_SCHEMAS = 1_000  # of the broker that has some, each with a topic
_MOST = 600_000  # messages of one load


def schemas(bench: Bench) -> list[Row]:
    """Batches of 100 small Avro records, in both encodings, and what the broker delivers of them."""
    rows: list[Row] = []
    try:
        bench.use(bench.broker)
        with _schema(bench.broker) as schema:
            for encoding, mark in (("BINARY", _PUBLISH_MARK), ("JSON", None)):
                without = Side(bench.broker, partial(fresh_place, bench.broker))
                carrying = Side(bench.broker, _place_with(bench.broker, schema, encoding))
                takes: list[Take] = [take_records(encoding, mark)]
                rows += side_by_side(bench, takes, without, carrying, f"Avro in {encoding}")
    except LoadFailed as error:
        rows.append(_failed("schemas", error))
    return rows


def schemas_of_others(bench: Bench) -> list[Row]:
    """Plain topics of two brokers: one has a schema for each of its other topics, the other none."""
    return beside_others(bench, "with schemas on other topics", _make_schemas)


def beside_others(bench: Bench, words: str, make: Callable[[Server, bool], None]) -> list[Row]:
    """Plain topics of two brokers.  `make`: others beside them, with what is measured in one and without it in the
    other, so that only this makes the difference.
    """
    without, carrying = Broker(bench.options.workers), Broker(bench.options.workers)
    try:
        for server in (without, carrying):
            bench.use(server)
            make(server, server is carrying)
        for server in (without, carrying):
            bench.warm_up(server, bench.options.warm_up_seconds)
        sides = Side(without, partial(fresh_place, without)), Side(carrying, partial(fresh_place, carrying))
        rows = side_by_side(bench, [take_publish, take_drain, take_lone_publish], *sides, words)
    except LoadFailed as error:
        return [_failed(words, error)]
    finally:
        carrying.stop()
        without.stop()
    for row in rows:
        if not row.lower_is_better:
            row.mark = _SAME
    return rows


def take_records(encoding: str, mark: float | None) -> Take:
    figure = Figure("publish, batches of 100 records", mark=mark)

    def take(server: Server, place: Place, seconds: float) -> Taken:
        specs = publish_specs(
            server, place, batch=100, processes=2, connections=1, seconds=seconds, count=_MOST, records=encoding
        )
        return {figure: take_sample(server, lambda: throughput(run_loads(specs)))}

    return take


@contextmanager
def _schema(server: Server) -> Iterator[str]:
    path = "projects/bench/schemas"
    body = {"type": "AVRO", "definition": json.dumps(RECORD)}
    call_each(server, [build_request("POST", f"/v1/{path}?schemaId=orders", json.dumps(body).encode())])
    yield f"{path}/orders"
    call_each(server, [build_request("DELETE", f"/v1/{path}/orders", b"")])


def _place_with(server: Server, schema: str, encoding: str) -> Callable[[], AbstractContextManager[Place]]:
    """A fresh topic that has the schema."""

    @contextmanager
    def place() -> Iterator[Place]:
        with fresh_place(server) as found:
            call_each(server, [_bound(found.topic, schema, encoding)])
            yield found

    return place


def _bound(topic: str, schema: str, encoding: str) -> bytes:
    settings = {"schemaSettings": {"schema": schema, "encoding": encoding}}
    body = {"topic": {"name": topic, **settings}, "updateMask": "schemaSettings"}
    return build_request("PATCH", f"/v1/{topic}", json.dumps(body).encode())


def _make_schemas(server: Server, carrying: bool) -> None:
    say(f"making {_SCHEMAS:,} topics, {'each with a schema' if carrying else 'plain ones'}")
    definition = json.dumps({"type": "AVRO", "definition": json.dumps(RECORD)}).encode()
    made = []
    for number in range(_SCHEMAS):
        settings: dict[str, object] = {}
        if carrying:
            schema = f"projects/others/schemas/orders-{number}"
            made.append(build_request("POST", f"/v1/projects/others/schemas?schemaId=orders-{number}", definition))
            settings = {"schemaSettings": {"schema": schema, "encoding": "BINARY"}}
        topic = f"projects/others/topics/orders-{number}"
        made.append(build_request("PUT", f"/v1/{topic}", json.dumps(settings).encode()))
    call_each(server, made)


def _failed(words: str, error: LoadFailed) -> Row:
    say(f"{words}: FAILED: {error}")
    return Row(measure=words, unit="", error=f"broker: {error}")
