"""One publish to a topic with 10,000 subscriptions (A13): pushed, and pulled."""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks.bench import Bench, call_each, say
from benchmarks.generators import run_loads
from benchmarks.latency import percentile
from benchmarks.load_spec import Result, Spec
from benchmarks.push import OWN_CLIENT, client_spec, new_lane
from benchmarks.report import Row, number
from benchmarks.servers import Broker, Sink
from benchmarks.wire import Connection, LoadFailed, build_request

SUBSCRIPTIONS = 10_000
_CONNECTIONS = 64
_BEGUN_MARK_MS = 1_000.0  # A13: delivery has begun on all of them within 1 s
_LIMIT_SECONDS = 120.0  # for all pushes of one publish
_CHECK_SECONDS = 0.05  # between two looks at what is out
_PUBLISHES = 200  # to compare the time of a publish
_PUBLISH_MARK = 1.25  # p50 with 10,000 subscriptions : with 1
_PROJECT = "projects/wide"
_WIDE, _NARROW = f"{_PROJECT}/topics/wide", f"{_PROJECT}/topics/narrow"


@dataclass(slots=True)
class _Fan:
    """Milliseconds of one publish's fan-out, round by round."""

    begun: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)


def push_10000(bench: Bench) -> list[Row]:
    """A broker of its own; 10,000 push subscriptions push to one sink, each to its own path.  Ours alone."""
    broker, sink, fan, lane = Broker(bench.options.workers), Sink(), _Fan(), new_lane("wide")
    created = Row(measure=f"create {SUBSCRIPTIONS:,} push subscriptions", unit="a second")
    try:
        bench.use(sink)
        bench.use(broker)
        created.ours = create_wide(broker, SUBSCRIPTIONS, sink.url(lane))
        with psycopg.connect(broker.database_url, autocommit=True) as connection:
            for round_ in range(bench.options.rounds + 1):
                _fan_out_round(broker, sink, lane, connection, fan, round_)
    except (LoadFailed, psycopg.Error) as error:
        created.error = f"broker: {error}"
        say(f"{created.measure}: FAILED: {error}")
    finally:
        broker.stop()
        _client_rounds(bench, sink, fan)
        sink.stop()
    return [created, *_fan_rows(fan)]


def create_wide(broker: Broker, count: int, endpoint: str = "") -> float:
    """A topic with so many subscriptions; how many were created a second.  Raises LoadFailed."""
    call_each(broker, [build_request("PUT", f"/v1/{_WIDE}")])
    result = run_loads([_wide_spec(broker, "subscribe", count, endpoint)])[0]
    a_second = count / (result.ended - result.started)
    say(f"{count:,} subscriptions created: {a_second:,.0f} a second")
    return a_second


def _wide_spec(broker: Broker, role: str, count: int, endpoint: str = "") -> Spec:
    return Spec(
        role=role,
        host=broker.host,
        port=broker.port,
        topic=_WIDE,
        subscription=f"{_PROJECT}/subscriptions/wide",
        count=count,
        connections=_CONNECTIONS,
        endpoint=endpoint,
        seconds=0,
    )


def _fan_out_round(
    broker: Broker, sink: Sink, lane: str, connection: "psycopg.Connection[Any]", fan: _Fan, round_: int
) -> None:
    """Publish once; wait until all have it, and meanwhile note when the last delivery was begun."""
    sink.arrivals(lane, "/forget")
    wall, began = time.time(), time.monotonic()
    call_each(broker, [one_message_to_all()])
    last_begun, most = wall, 0
    while (seen := sink.arrivals(lane)).distinct < SUBSCRIPTIONS:
        if time.monotonic() - began > _LIMIT_SECONDS:
            raise LoadFailed(f"{seen.distinct:,} of {SUBSCRIPTIONS:,} pushes arrived in {_LIMIT_SECONDS:g} s")
        out, latest = _out(connection)
        last_begun, most = max(last_begun, latest), max(most, out)
        time.sleep(_CHECK_SECONDS)
    begun, arrived = (last_begun - wall) * 1000, (seen.last - began) * 1000
    name = f"round {round_}" if round_ else "warm-up"
    say(f"1 publish, {name}: begun {begun:,.0f} ms, arrived {arrived:,.0f} ms")
    say(f"  {seen.count:,} requests; up to {most:,} deliveries were seen out")
    if round_:
        fan.arrived.append(arrived)
        fan.begun += [begun] if most else []


def _out(connection: "psycopg.Connection[Any]") -> tuple[int, float]:
    """How many deliveries are out, and when (seconds since 1970) the last of them was begun; 0 if none is."""
    row = connection.execute(
        "SELECT count(*), coalesce(extract(epoch FROM max(delivered_at)), 0)::float8 FROM delivery_attempts"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def one_message_to_all() -> bytes:
    """A publish of one message to the topic that has all the subscriptions."""
    return _one_message(_WIDE)


def _one_message(topic: str) -> bytes:
    return build_request("POST", f"/v1/{topic}:publish", json.dumps({"messages": [{"data": "aGVsbG8="}]}).encode())


def _client_rounds(bench: Bench, sink: Sink, fan: _Fan) -> None:
    """As many requests from the broker's HTTP client, without a broker."""
    if not sink.running:
        return
    for round_ in range(bench.options.rounds + 1):
        try:
            result = run_loads([client_spec(OWN_CLIENT, sink, new_lane("alone"), SUBSCRIPTIONS, numbered=True)])[0]
        except LoadFailed as error:
            say(f"the HTTP client: FAILED: {error}")
            return
        fan.alone += [(result.ended - result.started) * 1000] if round_ else []


def _fan_rows(fan: _Fan) -> list[Row]:
    name = f"1 publish to {SUBSCRIPTIONS:,} push subscriptions"
    begun = _median_row(f"{name}: all begun", fan.begun)
    begun.mark, begun.note = 1.0, "ratio: to 1 s"
    begun.ratio = begun.ours / _BEGUN_MARK_MS if begun.ours else None
    arrived = _median_row(f"{name}: all arrived", fan.arrived)
    alone = _median_row(f"limit: {OWN_CLIENT} alone, {SUBSCRIPTIONS:,} requests", fan.alone)
    arrived.note = "ratio: to the HTTP client alone"
    arrived.ratio = arrived.ours / alone.ours if arrived.ours and alone.ours else None
    return [begun, arrived, alone]


def _median_row(measure: str, values: Sequence[float]) -> Row:
    row = Row(measure=measure, unit="ms", lower_is_better=True, rounds={"broker": list(values)})
    row.ours = statistics.median(values) if values else None
    return row


def pull_10000(bench: Bench) -> list[Row]:
    """A broker of its own; one publish, then a pull from every one of 10,000 subscriptions.  Ours alone."""
    broker = Broker(bench.options.workers)
    one = Row(measure="lone publish to 1 subscription, p50", unit="ms")
    many = Row(measure=f"lone publish to {SUBSCRIPTIONS:,} pull subscriptions, p50", unit="ms", mark=_PUBLISH_MARK)
    many.lower_is_better, many.note = True, f"ratio: {SUBSCRIPTIONS:,} subscriptions : 1"
    pulled = Row(measure=f"1 publish pulled by {SUBSCRIPTIONS:,} subscriptions", unit="ms")
    try:
        bench.use(broker)
        created = create_wide(broker, SUBSCRIPTIONS)
        call_each(broker, [one_message_to_all()])
        result = run_loads([_wide_spec(broker, "pull_each", SUBSCRIPTIONS)])[0]
        _fill_pulled(pulled, result, created)
        _compare_publishes(broker, one, many)
    except LoadFailed as error:
        pulled.error = f"broker: {error}"
        say(f"{pulled.measure}: FAILED: {error}")
    finally:
        broker.stop()
    return [pulled, one, many]


def _fill_pulled(row: Row, result: Result, created: float) -> None:
    row.ours = (result.ended - result.started) * 1000
    p50, p99 = (percentile(result.pull_seconds, percent) for percent in (50, 99))
    row.note = (
        f"{result.messages:,} got it, {_CONNECTIONS} connections; a pull p50 {number(p50)}, p99 {number(p99)} ms; "
        f"created {created:,.0f} a second"
    )
    say(f"{row.measure}: {row.ours:,.0f} ms; {row.note}")
    if result.messages != SUBSCRIPTIONS:
        row.error = f"broker: {result.messages:,} of {SUBSCRIPTIONS:,} got the message"


def _compare_publishes(broker: Broker, one: Row, many: Row) -> None:
    """Single publishes to either topic, by turns, on one connection.  Raises LoadFailed."""
    subscription = json.dumps({"topic": _NARROW}).encode()
    call_each(
        broker,
        [
            build_request("PUT", f"/v1/{_NARROW}"),
            build_request("PUT", f"/v1/{_PROJECT}/subscriptions/narrow", subscription),
        ],
    )
    taken: dict[str, list[float]] = {_WIDE: [], _NARROW: []}
    connection = Connection(broker.host, broker.port)
    try:
        for _ in range(_PUBLISHES):
            for topic in taken:
                began = time.perf_counter()
                connection.call(_one_message(topic))
                taken[topic].append(time.perf_counter() - began)
    finally:
        connection.close()
    one.ours, many.ours = percentile(taken[_NARROW], 50), percentile(taken[_WIDE], 50)
    many.ratio = many.ours / one.ours if many.ours and one.ours else None
