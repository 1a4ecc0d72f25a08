"""Publishing in an application's own transaction (J7): what it costs beside the row change that it goes with, and
how soon after COMMIT a waiting pull has the message.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import psycopg

from benchmarks.bench import Bench, Place, fresh_place, say
from benchmarks.calls import ACK_ID
from benchmarks.latency import latency_load, percentile
from benchmarks.report import Row
from benchmarks.servers import Broker
from benchmarks.wire import Connection, LoadFailed, build_request

_ROLE = "bench_app"
_APPLICATIONS = 4  # connections that commit, each in a thread
_INSERT = "INSERT INTO orders (text) VALUES (repeat('x', 100))"
_PUBLISH = "SELECT pubsub.publish(%s, convert_to(repeat('x', 100), 'UTF8'))"
_WAITS_SECONDS = 0.02  # until the pull waits
_UNIT = "transactions/s"


def own_transaction(bench: Bench) -> list[Row]:
    """Ours alone: nobody else has it."""
    try:
        bench.use(bench.broker)
        with _granted(bench.broker) as url, fresh_place(bench.broker) as place:
            return [_rate(bench, url, place), *_latency(bench, url)]
    except (LoadFailed, psycopg.Error) as error:
        say(f"own-transaction: FAILED: {error}")
        return [Row(measure="own-transaction", unit="", error=f"broker: {error}")]


@contextmanager
def _granted(broker: Broker) -> Iterator[str]:
    """Where an application with a grant and a table of its own connects to."""
    data = str(broker.directory / "data")
    command = ["sql", "grant", _ROLE, "--data-dir", data, "--project", "bench"]
    granted = subprocess.run(
        [sys.executable, "-m", "broker", *command], capture_output=True, text=True, check=False
    )
    if granted.returncode:
        raise LoadFailed(f"broker sql grant: {granted.stderr.strip()}")
    url = broker.database_url.partition("&options=")[0]
    with psycopg.connect(url, user=_ROLE, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, text text)")
        yield url
        connection.execute("DROP TABLE orders")


def _rate(bench: Bench, url: str, place: Place) -> Row:
    """By turns: an insert, and an insert with a publish, each a transaction."""
    plain: list[float] = []
    both: list[float] = []
    for round_ in range(bench.options.rounds + 1):
        turns = [(plain, ""), (both, place.topic)]
        for values, topic in turns if round_ % 2 else reversed(turns):
            rate = _commits(url, topic, bench.options.seconds)
            say(f"inserts{' with a publish' * bool(topic)}: {rate:,.0f} {_UNIT}")
            values += [rate] if round_ else []
    row = Row(measure=f"an insert and a publish, {_APPLICATIONS} connections", unit=_UNIT)
    row.ours, alone = median(both), median(plain)
    row.ratio, row.note = row.ours / alone, f"the insert alone: {alone:,.0f}; ratio: with a publish : alone"
    return row


def _commits(url: str, topic: str, seconds: float) -> float:
    """How many transactions all connections together commit a second."""
    until = time.monotonic() + seconds

    def application() -> int:
        with psycopg.connect(url, user=_ROLE) as connection:
            done = 0
            while time.monotonic() < until:
                connection.execute(_INSERT)
                if topic:
                    connection.execute(_PUBLISH, (topic,))
                connection.commit()
                done += 1
        return done

    with ThreadPoolExecutor(_APPLICATIONS) as pool:
        return sum(pool.map(lambda _: application(), range(_APPLICATIONS))) / seconds


def _latency(bench: Bench, url: str) -> list[Row]:
    """From COMMIT to the answer of a pull that waits, beside the same after a publish by the API."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(bench.options.rounds):
        with fresh_place(bench.broker) as place:
            ours += _awaited(bench.broker, url, place, bench.options.seconds)
        with fresh_place(bench.broker) as place:
            theirs += latency_load(bench.broker, place, "waiting_pull", bench.options.seconds).pull_seconds
    rows = []
    for percent in (50, 99):
        row = Row(measure=f"COMMIT → waiting pull, p{percent}", unit="ms", lower_is_better=True)
        mine, others = percentile(ours, percent), percentile(theirs, percent)
        row.ours = mine
        if mine and others:
            row.ratio = mine / others
            row.note = f"publish → waiting pull: {others:.2f}; ratio: COMMIT : publish; {len(ours):,} messages"
        rows.append(row)
    return rows


def _awaited(broker: Broker, url: str, place: Place, seconds: float) -> list[float]:
    """The seconds of each message.  Raises LoadFailed."""
    pull = build_request("POST", f"/v1/{place.subscriptions[0]}:pull", b'{"maxMessages":1}')
    connection, taken = Connection(broker.host, broker.port), []
    until = time.monotonic() + seconds
    with psycopg.connect(url, user=_ROLE) as application:
        while time.monotonic() < until:
            answered = _in_thread(connection, pull)
            time.sleep(_WAITS_SECONDS)
            application.execute(_PUBLISH, (place.topic,))
            began = time.perf_counter()
            application.commit()
            answer, at = answered.result()
            taken.append(at - began)
            ack_ids = [ack_id.decode() for ack_id in ACK_ID.findall(answer)]
            body = json.dumps({"ackIds": ack_ids}).encode()
            connection.call(build_request("POST", f"/v1/{place.subscriptions[0]}:acknowledge", body))
    connection.close()
    return taken


def _in_thread(connection: Connection, request: bytes) -> "Future[tuple[bytes, float]]":
    """The answer, and when it came, by perf_counter."""
    answered: Future[tuple[bytes, float]] = Future()

    def call() -> None:
        try:
            answered.set_result((connection.call(request), time.perf_counter()))
        except Exception as error:
            answered.set_exception(error)

    threading.Thread(target=call).start()
    return answered
