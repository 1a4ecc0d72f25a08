"""Exports and imports (G2) as lines of JSON and as Avro: messages a second.  Ours alone: nobody else has them."""

import json
import os
import statistics
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.bench import Bench, fresh_place, say
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.throughput import MESSAGE_BYTES, UNIT, fill
from benchmarks.wire import Connection, LoadFailed, build_request
from broker.features.import_export.avro_messages import NEW_MESSAGE, AvroWriter

_PART = 1_000  # messages
_CONNECTIONS = 2
_MARKER = b"0123456789abcdef"
_FORMS: Mapping[str, Mapping[str, str]] = {
    "JSON": {},
    "Avro": {"format": "AVRO"},
    "Avro, deflate": {"format": "AVRO", "codec": "DEFLATE"},
}


def transfers(bench: Bench) -> list[Row]:
    """A topic with as many messages as `--backlog` says (the first), exported and imported in each form."""
    count = bench.options.backlog[0] // (_PART * _CONNECTIONS) * (_PART * _CONNECTIONS)
    broker = Broker(bench.options.workers)
    exports = [Row(measure=f"export of {count:,} messages, {form}", unit=UNIT) for form in _FORMS]
    imports = [
        Row(measure=f"import of {count:,} messages, {form}, {_CONNECTIONS} connections", unit=UNIT)
        for form in _FORMS
    ]
    try:
        bench.use(broker)
        with fresh_place(broker) as place:
            fill(broker, place, count)
            for row, options in zip(exports, _FORMS.values(), strict=True):
                _rounds(bench, row, count, lambda options=options: _export(broker, place.topic, options))  # type: ignore[misc]
        for row, form in zip(imports, _FORMS, strict=True):
            _rounds(bench, row, count, lambda form=form: _import(broker, form, count))  # type: ignore[misc]
    except LoadFailed as error:
        exports[0].error = f"broker: {error}"
    finally:
        broker.stop()
    for rows in (exports, imports):
        for row in rows[1:]:
            if row.ours and rows[0].ours:
                row.ratio, row.note = row.ours / rows[0].ours, f"{row.note}; ratio: this : JSON"
    return [*exports, *imports]


def _rounds(bench: Bench, row: Row, count: int, run: Callable[[], tuple[float, int]]) -> None:
    """`run` says how many seconds it took, and how many bytes were sent; the first time warms up."""
    rates, size = [], 0
    for _ in range(bench.options.rounds + 1):
        seconds, size = run()
        rates.append(count / seconds)
    row.rounds = {"broker": rates[1:]}
    row.ours = statistics.median(rates[1:])
    row.note = f"{size / count:,.0f} bytes a message"
    say(f"{row.measure}: {row.ours:,.0f}")


def _export(server: Server, topic: str, options: Mapping[str, str]) -> tuple[float, int]:
    connection = Connection(server.host, server.port)
    began = time.perf_counter()
    connection.send(build_request("POST", f"/v1/{topic}:export", json.dumps(options).encode()))
    size = connection.receive_size()
    taken = time.perf_counter() - began
    connection.close()
    return taken, size


def _import(server: Server, form: str, count: int) -> tuple[float, int]:
    """Each connection has an import of its own, and sends one part after the other."""
    part = _part(form)
    with fresh_place(server) as place, ThreadPoolExecutor(_CONNECTIONS) as threads:

        def run(_: int) -> None:
            connection = Connection(server.host, server.port)
            path = f"/v1/{place.topic}:import?importId={uuid.uuid4().hex}&part="
            for number in range(1, count // _PART // _CONNECTIONS + 1):
                connection.call(build_request("POST", f"{path}{number}", part))
            connection.close()

        began = time.perf_counter()
        list(threads.map(run, range(_CONNECTIONS)))
        return time.perf_counter() - began, len(part) * (count // _PART)


def _part(form: str) -> bytes:
    data: Sequence[bytes] = [os.urandom(MESSAGE_BYTES) for _ in range(_PART)]
    if form == "JSON":
        return b"".join(json.dumps({"data": b64encode(each).decode()}).encode() + b"\n" for each in data)
    writer = AvroWriter(NEW_MESSAGE, _FORMS[form].get("codec", "NULL"), _MARKER)
    for each in data:
        writer.add({"ordering_key": "", "attributes": {}, "data": each})
    return writer.take()
