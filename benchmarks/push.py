"""Push: from a publish to its arrival at the endpoint, and how fast a backlog goes out."""

import base64
import json
import os
import statistics
import uuid
from collections.abc import Sequence

from benchmarks.bench import Bench, Place, Sample, compare, fresh_place, say, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.latency import delay_rows
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.servers import Server, Sink
from benchmarks.throughput import fill
from benchmarks.wire import Connection, LoadFailed, build_request

PACE = 200.0  # publishes a second: a rate that both brokers can keep
_PACED_LONGER = 2  # a paced round lasts so many times --seconds
_ARRIVE_SECONDS = 10.0  # for the last pushes, after the last publish
_MESSAGE_BYTES = 75
_BACKLOG_PER_SECOND = 15_000  # of --seconds
_LIMIT = 4  # a backlog is cut off after so many times --seconds: the emulator takes minutes
_CONNECTIONS = 64
OWN_CLIENT, AIOHTTP = "the broker's HTTP client", "aiohttp"
CLIENTS = {OWN_CLIENT: 0.5, AIOHTTP: None}  # with the mark for pushes : what the client does alone


def new_lane(name: str) -> str:
    """A lane of the sink that nobody has used."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def push_latency(bench: Bench) -> list[Row]:
    """Publishes at an even pace to one push subscription; percentiles over all rounds together."""
    bench.renew_emulator()
    sink = Sink()
    delays: dict[str, list[float]] = {server.name: [] for server in bench.servers}
    failures: dict[str, str] = {}
    try:
        bench.use(sink)
        for number in range(bench.options.rounds + 1):
            for server in bench.servers if number % 2 else reversed(bench.servers):
                if server.name not in failures:
                    taken = _latency_round(bench, server, sink, failures)
                    delays[server.name] += taken if number else []
            say(f"publish → push, {f'round {number}' if number else 'warm-up'}: done")
    except LoadFailed as error:
        failures["sink"] = str(error)
    finally:
        sink.stop()
    return delay_rows(f"publish → push at {PACE:g}/s", delays, failures)


def _latency_round(bench: Bench, server: Server, sink: Sink, failures: dict[str, str]) -> Sequence[float]:
    try:
        bench.use(server)
        lane = new_lane("latency")
        with fresh_place(server, endpoint=sink.url(lane)) as place:
            return paced_delays(server, sink, place, lane, PACE, bench.options.seconds * _PACED_LONGER)
    except LoadFailed as error:
        failures[server.name] = str(error)
        say(f"publish → push, {server.name}: FAILED: {error}")
        return []


def paced_delays(
    server: Server, sink: Sink, place: Place, lane: str, pace: float, seconds: float, copies: int = 1
) -> Sequence[float]:
    """Publish at a pace; the seconds from when each publish was due to each of its `copies` arrivals at a lane.

    Raises LoadFailed if not all arrive.
    """
    spec = Spec(
        role="paced_publish",
        host=server.host,
        port=server.port,
        topic=place.topic,
        size=_MESSAGE_BYTES,
        rate=pace,
        seconds=seconds,
    )
    due = run_loads([spec])[0].messages * copies
    sink.wait(lane, due, _ARRIVE_SECONDS)
    arrived = sink.arrivals(lane, "/delays")
    if arrived.distinct < due:
        late = f"{_ARRIVE_SECONDS:g} s after the last publish"
        raise LoadFailed(f"{arrived.distinct:,} of {due:,} pushes had arrived {late}")
    return arrived.delays


def push_throughput(bench: Bench) -> list[Row]:
    """A backlog waits on a pull subscription, which then becomes a push subscription; and HTTP clients alone.

    The figure is the rate from the first arrival to the last, cut off after some time.
    """
    sink = Sink()
    push = Row(measure="push, a backlog to a fast endpoint", unit="messages/s")
    limits = []
    count = backlog_count(bench)

    def run(server: Server) -> Sample:
        lane = new_lane("throughput")
        with fresh_place(server) as place:
            fill(server, place, count)
            return take_sample(server, lambda: push_backlog(bench, server, sink, place, lane, count), sink)

    try:
        bench.use(sink)
        compare(bench, push, run)
        for client, mark in CLIENTS.items():
            limits.append(_limit_row(bench, sink, client, count, mark, push.ours))
    except LoadFailed as error:
        push.error = str(error)
    finally:
        sink.stop()
    return [push, *limits]


def backlog_count(bench: Bench) -> int:
    """How many messages a backlog has that is pushed."""
    return int(bench.options.seconds * _BACKLOG_PER_SECOND)


def _limit_row(bench: Bench, sink: Sink, client: str, count: int, mark: float | None, pushes: float | None) -> Row:
    """What an HTTP client does alone, with nothing around it."""
    row = Row(measure=f"limit: {client} alone, {_CONNECTIONS} connections", unit="requests/s", mark=mark)
    row.note = "the same endpoint; ratio: push : this"
    try:
        for number in range(bench.options.rounds + 1):
            done = throughput(run_loads([client_spec(client, sink, new_lane("alone"), count)]))
            say(f"{row.measure}, round {number}: {done.per_second:,.0f}")
            if number:
                row.rounds.setdefault("broker", []).append(done.per_second)
        row.ours = statistics.median(row.rounds["broker"])
        row.ratio = pushes / row.ours if pushes else None
    except LoadFailed as error:
        row.error = str(error)
    return row


def push_backlog(bench: Bench, server: Server, sink: Sink, place: Place, lane: str, count: int) -> Throughput:
    """Turns the subscription into a push subscription and waits for its backlog.  Raises LoadFailed."""
    _modify_push_config(server, place, sink.url(lane))
    arrived = sink.wait(lane, count, bench.options.seconds * _LIMIT)
    _modify_push_config(server, place, "")
    if arrived.distinct < 2:
        raise LoadFailed("nothing was pushed")
    return Throughput(arrived.per_second * arrived.distinct / arrived.count, arrived.distinct)


def _modify_push_config(server: Server, place: Place, endpoint: str) -> None:
    body = {"pushConfig": {"pushEndpoint": endpoint} if endpoint else {}}
    connection = Connection(server.host, server.port)
    try:
        path = f"/v1/{place.subscriptions[0]}:modifyPushConfig"
        connection.call(build_request("POST", path, json.dumps(body).encode()))
    finally:
        connection.close()


def client_spec(client: str, sink: Sink, lane: str, count: int, *, numbered: bool = False) -> Spec:
    """An HTTP client alone, with a request such as the broker sends.  `client` is a key of CLIENTS."""
    data = base64.b64encode(os.urandom(_MESSAGE_BYTES)).decode()
    time = "2026-11-21T12:00:00.123Z"
    message = {
        "attributes": {},
        "data": data,
        "messageId": "1000000000000001",
        "message_id": "1000000000000001",
        "publishTime": time,
        "publish_time": time,
    }
    body = json.dumps({"message": message, "subscription": "projects/bench/subscriptions/bench-0123456789ab-0"})
    return Spec(
        role="aiohttp_push" if client == AIOHTTP else "client_push",
        host=sink.host,
        port=sink.port,
        endpoint=sink.url(lane),
        body=body,
        count=count,
        seconds=0,
        connections=_CONNECTIONS,
        numbered=numbered,
    )
