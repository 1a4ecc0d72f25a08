"""Redrive (G2): how fast dead letters come back, alone and beside publishes and a drain of another topic.

The letters are real ones: messages are published, nacked five times by a puller, and forwarded by the broker.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench, Place, call_each, fresh_place, say
from benchmarks.calls import ACK_ID
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.throughput import UNIT, fill, through_load
from benchmarks.wire import Connection, LoadFailed, build_request

_PROJECT = "projects/bench"
_ATTEMPTS = 5  # the fewest that there may be
_CHECK_SECONDS = 0.2
_MOST_SECONDS = 900.0


def redrive(bench: Bench) -> list[Row]:
    """As many letters as `--backlog` says (the first); ours alone: nobody else has it."""
    count = bench.options.backlog[0]
    broker = Broker(bench.options.workers)
    rows = [Row(measure=f"redrive of {count:,} dead letters{how}", unit=UNIT) for how in ("", ", beside a load")]
    beside = Row(measure="publish (100) and drain at once, beside a redrive", unit=UNIT)
    try:
        bench.use(broker)
        with _dead_letters(broker, count) as (name, pile):
            rows[0].ours = count / _redrive(broker, name)
            _give_up(broker, name, pile, count)
            with fresh_place(broker) as place:
                load = _Load(broker, place)
                alone = load.round(bench.options.seconds)
                rows[1].ours = count / load.beside(lambda: _redrive(broker, name), bench.options.seconds)
                rows[1].ratio = rows[1].ours / rows[0].ours
                rows[1].note = "ratio: beside the load : alone"
                beside.ours = load.values[0]
                beside.ratio, beside.note = beside.ours / alone, "ratio: beside the redrive : alone"
    except LoadFailed as error:
        rows[0].error = f"broker: {error}"
    finally:
        broker.stop()
    return [*rows, beside]


@contextmanager
def _dead_letters(server: Server, count: int) -> Iterator[tuple[str, str]]:
    """A subscription that has given up so many messages, which lie in a subscription of the dead-letter topic."""
    with fresh_place(server) as pile, fresh_place(server, 0) as source:
        name = source.topic.replace("/topics/", "/subscriptions/")
        policy = {"deadLetterTopic": pile.topic, "maxDeliveryAttempts": _ATTEMPTS}
        body = {"topic": source.topic, "ackDeadlineSeconds": 600, "deadLetterPolicy": policy}
        call_each(server, [build_request("PUT", f"/v1/{name}", json.dumps(body).encode())])
        fill(server, source, count)
        _give_up(server, name, pile.subscriptions[0], count)
        yield name, pile.subscriptions[0]
        call_each(server, [build_request("DELETE", f"/v1/{name}", b"")])


def _give_up(server: Server, name: str, pile: str, count: int) -> None:
    """Nack all that the subscription has until the broker has given it up.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    pull = build_request("POST", f"/v1/{name}:pull", b'{"maxMessages":1000,"returnImmediately":true}')
    until = time.monotonic() + _MOST_SECONDS
    nacked = 0
    while nacked < _ATTEMPTS * count and time.monotonic() < until:
        if ack_ids := ACK_ID.findall(connection.call(pull)):
            body = {"ackIds": [ack_id.decode() for ack_id in ack_ids], "ackDeadlineSeconds": 0}
            connection.call(build_request("POST", f"/v1/{name}:modifyAckDeadline", json.dumps(body).encode()))
            nacked += len(ack_ids)
    waiting = build_request("GET", f"/v1/{pile}/snapshot", b"")
    forwarded = 0
    while forwarded < count:
        if time.monotonic() > until:
            raise LoadFailed(f"{nacked:,} nacks, and {forwarded:,} of {count:,} messages are dead letters")
        time.sleep(_CHECK_SECONDS)
        forwarded = int(json.loads(connection.call(waiting))["undeliveredMessages"])
    connection.close()
    say(f"{count:,} were given up")


class _Load:
    """Publishes and a drain at once, round after round."""

    def __init__(self, server: Server, place: Place) -> None:
        self._server, self._place = server, place
        self.values: list[float] = []

    def round(self, seconds: float) -> float:
        return through_load(self._server, self._place, seconds).per_second

    def beside(self, act: Callable[[], float], seconds: float) -> float:
        """What `act` returns, with the load all the while; the first round's figure is kept."""
        over = threading.Event()

        def load() -> None:
            while not over.is_set():
                self.values.append(self.round(seconds))

        thread = threading.Thread(target=load)
        thread.start()
        try:
            return act()
        finally:
            over.set()
            thread.join()


def _redrive(server: Server, name: str) -> float:
    """Seconds until all letters are back.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    began = time.monotonic()
    operation = json.loads(connection.call(build_request("POST", f"/v1/{name}:redrive", b"{}")))
    while not operation["done"]:
        if time.monotonic() - began > _MOST_SECONDS:
            raise LoadFailed(f"the redrive did not end: {operation}")
        time.sleep(_CHECK_SECONDS)
        operation = json.loads(connection.call(build_request("GET", f"/v1/{operation['name']}", b"")))
    connection.close()
    if "error" in operation:
        raise LoadFailed(f"the redrive: {operation['error']}")
    say(f"redrive: {operation['response']}")
    return time.monotonic() - began
