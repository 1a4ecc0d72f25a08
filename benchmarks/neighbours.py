"""Neighbours: what somebody greedy costs a good tenant of the same process (M1).

The good one publishes a message, pulls it and acks it, over and over, and another subscription of the topic is
pushed: first alone, then beside each attack (benchmarks/attacks), on a broker of its own.  What is pushed is a
subscription that was made after the attack began: nothing is known of its endpoint.  The memory of the broker's
Python processes is sampled meanwhile.  Beside schedules the good one has some whose ticks are measured, too.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from benchmarks.access import token_of
from benchmarks.attacks.__main__ import ATTACKS, GUARDED
from benchmarks.bench import Bench, call_each, say
from benchmarks.calls import ACK_ID, acknowledge, stamped_publish
from benchmarks.generators import program_beside
from benchmarks.latency import percentile
from benchmarks.push import new_lane
from benchmarks.refusals import refusals
from benchmarks.report import Row
from benchmarks.servers import Broker, GuardedBroker, Server, Sink
from benchmarks.wire import Connection, LoadFailed, build_request, showing

_PROJECT = "projects/good"
_TOPIC, _SUBSCRIPTION = f"{_PROJECT}/topics/neighbour", f"{_PROJECT}/subscriptions/neighbour"
_PULL = b'{"maxMessages":10}'
_MESSAGE_BYTES = 32
_LARGE_BYTES: Mapping[str, int] = {"unfinished requests": 100_000}  # what the good one publishes beside it
_CODE = "function f(message, metadata) { message.attributes.seen = 'yes'; return message; }"
_FUNCTION = {"javascriptUdf": {"functionName": "f", "code": _CODE}}  # the good one has one beside hostile ones
_SCHEMAS, _SCHEDULES = "slow schemas", "schedules"  # the good one has a schema, or a schedule, too
_TICKED = f"{_PROJECT}/topics/ticks"
_EACH = [f"{_PROJECT}/schedules/each-second-{number}" for number in range(20)]
_SCHEMA = {"type": "JSON", "definition": '{"type": "integer"}'}
_EACH_SECOND = {"topic": _TICKED, "interval": "1s", "message": {"data": "eA=="}}
_RESOURCES: Mapping[str, Sequence[bytes]] = {
    _SCHEMAS: [build_request("POST", f"/v1/{_PROJECT}/schemas?schemaId=whole", json.dumps(_SCHEMA).encode())],
    _SCHEDULES: [
        build_request("PUT", f"/v1/{_TICKED}"),
        *(build_request("PUT", f"/v1/{name}", json.dumps(_EACH_SECOND).encode()) for name in _EACH),
    ],
}
_TOPIC_OPTIONS: Mapping[str, object] = {
    "hostile functions": {"messageTransforms": [_FUNCTION]},
    _SCHEMAS: {"schemaSettings": {"schema": f"{_PROJECT}/schemas/whole", "encoding": "JSON"}},
}
_CHECKED_BYTES = 150_000
_SAMPLE_SECONDS = 0.5
_LONGER = 5  # a measure lasts so many times --seconds
_PAUSE_SECONDS = 0.005
_ARRIVE_SECONDS = 5.0  # for the last pushes, after the last publish
_MARKS = {50: 2.0, 99: 5.0}  # beside : alone


@dataclass(slots=True)
class _Taken:
    """Seconds of each publish, pull and ack together, and from each publish to its push.

    `refused` of the first were not all answered with 200; `not_pushed` messages had not arrived at the end.
    """

    calls: Sequence[float]
    pushes: Sequence[float]
    refused: int
    not_pushed: int
    memory: int  # the most bytes
    ticks: Sequence[float] = ()  # how late each was


@dataclass(slots=True)
class _Calls:
    """What was called, so far."""

    seconds: list[float] = field(default_factory=list)
    published: int = 0
    refused: int = 0
    words: str = ""  # of the last refusal
    memory: int = 0


def neighbours(bench: Bench) -> list[Row]:
    """One attack after the other; ours alone."""
    rows: list[Row] = []
    sink = Sink()
    try:
        bench.use(sink)
        for attack in bench.options.attacks or ATTACKS:
            rows += _beside(bench, sink, attack)
            say(f"neighbours, {attack}: done")
    except LoadFailed as error:
        rows.append(Row(measure="neighbours", unit="ms", error=f"sink: {error}"))
    finally:
        sink.stop()
    return rows


def _beside(bench: Bench, sink: Sink, attack: str) -> list[Row]:
    broker = GuardedBroker(bench.options.workers) if attack in GUARDED else Broker(bench.options.workers)
    try:
        bench.use(broker)
        if not isinstance(broker, GuardedBroker):
            return _rows(attack, *_measure(bench, broker, sink, attack))
        with showing(f"Bearer {token_of(broker.admin_key)}"):
            return [*_rows(attack, *_measure(bench, broker, sink, attack)), *refusals(broker)]
    except LoadFailed as error:
        return [Row(measure=f"neighbour of {attack}", unit="ms", error=f"broker: {error}")]
    finally:
        broker.stop()


def _measure(bench: Bench, broker: Broker, sink: Sink, attack: str) -> tuple[_Taken, _Taken]:
    seconds = bench.options.seconds * _LONGER
    body = json.dumps({"topic": _TOPIC}).encode()
    topic = json.dumps(_TOPIC_OPTIONS.get(attack, {})).encode()
    call_each(
        broker,
        [
            *_RESOURCES.get(attack, ()),
            build_request("PUT", f"/v1/{_TOPIC}", topic),
            build_request("PUT", f"/v1/{_SUBSCRIPTION}", body),
        ],
    )
    _live(broker, sink, bench.options.seconds, attack)  # warms up
    alone = _live(broker, sink, seconds, attack)
    with _attacked(broker, attack, elsewhere=bench.options.attackers_elsewhere):
        return alone, _live(broker, sink, seconds, attack)


def _attacked(broker: Server, attack: str, *, elsewhere: bool) -> AbstractContextManager[None]:
    arguments = [attack, broker.host, str(broker.port)]
    prefix = ["nice", "-n", "19"] if elsewhere else []
    return program_beside(f"the attack {attack}", "benchmarks.attacks", *arguments, prefix=prefix)


def _live(server: Server, sink: Sink, seconds: float, attack: str) -> _Taken:
    """As the good one, for so long."""
    began = datetime.now(UTC)
    lane = new_lane("neighbour")
    pushed = f"{_PROJECT}/subscriptions/{lane}"
    config = {"topic": _TOPIC, "pushConfig": {"pushEndpoint": sink.url(lane)}}
    call_each(server, [build_request("PUT", f"/v1/{pushed}", json.dumps(config).encode())])
    calls = _call(server, seconds, _publish_of(attack))
    sink.wait(lane, calls.published, _ARRIVE_SECONDS)
    arrived = sink.arrivals(lane, "/delays")
    call_each(server, [build_request("DELETE", f"/v1/{pushed}", b"")])
    if calls.refused:
        say(f"neighbours: {calls.refused:,} refused: {calls.words[:300]}")
    ticks = _ticks(server, began) if attack == _SCHEDULES else ()
    not_pushed = calls.published - arrived.distinct
    return _Taken(calls.seconds, arrived.delays, calls.refused, not_pushed, calls.memory, ticks)


def _publish_of(attack: str) -> Callable[[float], bytes]:
    """What the good one publishes beside an attack, as a request for the moment of its sending."""
    if attack == _SCHEMAS:
        return _whole_number
    size = _LARGE_BYTES.get(attack, _MESSAGE_BYTES)
    return lambda begun: stamped_publish(_TOPIC, size, begun)


def _ticks(server: Server, since: datetime) -> list[float]:
    """How late each tick was that was planned after a time: seconds."""
    connection = Connection(server.host, server.port)
    answers = [connection.call(build_request("GET", f"/v1/{name}/ticks?pageSize=100")) for name in _EACH]
    connection.close()
    entries = [entry for answer in answers for entry in json.loads(answer).get("ticks", [])]
    planned = [
        (datetime.fromisoformat(each["tickTime"]), datetime.fromisoformat(each["runTime"])) for each in entries
    ]
    return [(ran - tick).total_seconds() for tick, ran in planned if tick > since]


def _whole_number(begun: float) -> bytes:
    """A publish of a JSON number that is so long that it is checked apart."""
    data = base64.b64encode(b"%d" % int(begun * 1e9) + b" " * _CHECKED_BYTES).decode()
    return build_request("POST", f"/v1/{_TOPIC}:publish", json.dumps({"messages": [{"data": data}]}).encode())


def _call(server: Server, seconds: float, publish: Callable[[float], bytes]) -> _Calls:
    """Publish, pull and ack, for so long."""
    calls, pull = _Calls(), build_request("POST", f"/v1/{_SUBSCRIPTION}:pull", _PULL)
    connection = Connection(server.host, server.port)
    until = time.monotonic() + seconds
    sample_at = 0.0
    while (begun := time.monotonic()) < until:
        if begun > sample_at:
            calls.memory = max(calls.memory, server.resident_bytes())
            sample_at = time.monotonic() + _SAMPLE_SECONDS
            continue
        if _answer(connection, publish(begun), calls) is not None:
            calls.published += 1
            pulled = _answer(connection, pull, calls)
            ack_ids = ACK_ID.findall(pulled or b"")
            if ack_ids and _answer(connection, acknowledge(_SUBSCRIPTION, ack_ids), calls) is not None:
                calls.seconds.append(time.monotonic() - begun)
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    return calls


def _answer(connection: Connection, request: bytes, calls: _Calls) -> bytes | None:
    """None: it was refused, which is counted."""
    connection.send(request)
    status, answer = connection.receive_any()
    if status == 200:
        return answer
    calls.refused, calls.words = calls.refused + 1, answer.decode(errors="replace")
    return None


def _rows(attack: str, alone: _Taken, beside: _Taken) -> list[Row]:
    kinds = (
        ("publish, pull, ack", alone.calls, beside.calls, f"{beside.refused:,} refused"),
        ("publish → push", alone.pushes, beside.pushes, f"{beside.not_pushed:,} not pushed"),
        *([("lateness of ticks", alone.ticks, beside.ticks, "")] if beside.ticks else ()),
    )
    rows = []
    for kind, before, during, failed in kinds:
        for percent, mark in _MARKS.items():
            measure = f"{kind} of a neighbour of {attack}, p{percent}"
            row = Row(measure=measure, unit="ms", ours=percentile(during, percent), mark=mark)
            row.lower_is_better = True
            alone_ms = percentile(before, percent)
            row.ratio = row.ours / alone_ms if row.ours and alone_ms else None
            row.note = f"ratio: beside : alone; {len(during):,} samples, {failed}"
            rows.append(row)
    memory = Row(measure=f"memory beside {attack}", unit="MB", ours=beside.memory / 1e6)
    memory.note = f"the most of the Python processes; {alone.memory / 1e6:.0f} MB alone"
    rows.append(memory)
    return rows
