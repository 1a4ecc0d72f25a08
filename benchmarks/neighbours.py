"""Neighbours: what somebody greedy costs a good tenant of the same process (M1).

The good one publishes a message, pulls it and acks it, over and over: first alone, then beside each attack
(benchmarks/attacks), on a broker of its own.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.attacks.__main__ import ATTACKS
from benchmarks.bench import Bench, call_each, say
from benchmarks.calls import ACK_ID, acknowledge
from benchmarks.generators import REPOSITORY
from benchmarks.latency import percentile
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.wire import Connection, LoadFailed, build_request

_PROJECT = "projects/good"
_TOPIC, _SUBSCRIPTION = f"{_PROJECT}/topics/neighbour", f"{_PROJECT}/subscriptions/neighbour"
_PUBLISH = build_request("POST", f"/v1/{_TOPIC}:publish", b'{"messages":[{"data":"eA=="}]}')
_LONGER = 5  # a measure lasts so many times --seconds
_PAUSE_SECONDS = 0.005
_MARKS = {50: 2.0, 99: 5.0}  # beside : alone


@dataclass(slots=True)
class _Taken:
    """Seconds of each publish, pull and ack together; `refused` of them were not all answered with 200."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    words: str = ""  # of the last refusal


def neighbours(bench: Bench) -> list[Row]:
    """One attack after the other; ours alone."""
    rows: list[Row] = []
    for attack in ATTACKS:
        broker = Broker(bench.options.workers)
        try:
            bench.use(broker)
            alone, beside = _measure(bench, broker, attack)
            rows += _rows(attack, alone, beside)
        except LoadFailed as error:
            rows.append(Row(measure=f"neighbour of {attack}", unit="ms", error=f"broker: {error}"))
        finally:
            broker.stop()
        say(f"neighbours, {attack}: done")
    return rows


def _measure(bench: Bench, broker: Broker, attack: str) -> tuple[_Taken, _Taken]:
    seconds = bench.options.seconds * _LONGER
    body = json.dumps({"topic": _TOPIC}).encode()
    call_each(
        broker,
        [build_request("PUT", f"/v1/{_TOPIC}"), build_request("PUT", f"/v1/{_SUBSCRIPTION}", body)],
    )
    _live(broker, bench.options.seconds)  # warms up
    alone = _live(broker, seconds)
    with _attacked(broker, attack):
        return alone, _live(broker, seconds)


@contextmanager
def _attacked(broker: Server, attack: str) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.attacks", attack, broker.host, str(broker.port)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise LoadFailed(f"the attack {attack} did not get going")
            yield
            if process.poll() is not None:
                raise LoadFailed(f"the attack {attack} ended before its time")
        finally:
            process.kill()


def _live(server: Server, seconds: float) -> _Taken:
    """As the good one, for so long."""
    taken = _Taken()
    connection = Connection(server.host, server.port)
    pull = build_request("POST", f"/v1/{_SUBSCRIPTION}:pull", b'{"maxMessages":10}')
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        for request in (_PUBLISH, pull):
            connection.send(request)
            status, answer = connection.receive_any()
            if status != 200:
                taken.refused, taken.words = taken.refused + 1, answer.decode(errors="replace")
                break
        else:
            connection.call(acknowledge(_SUBSCRIPTION, ACK_ID.findall(answer)))
            taken.seconds.append(time.monotonic() - begun)
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    return taken


def _rows(attack: str, alone: _Taken, beside: _Taken) -> list[Row]:
    rows = []
    for percent, mark in _MARKS.items():
        measure = f"publish, pull, ack of a neighbour of {attack}, p{percent}"
        row = Row(measure=measure, unit="ms", ours=percentile(beside.seconds, percent), mark=mark)
        row.lower_is_better = True
        before = percentile(alone.seconds, percent)
        row.ratio = row.ours / before if row.ours and before else None
        row.note = f"ratio: beside : alone; {len(beside.seconds):,} samples, {beside.refused:,} refused"
        rows.append(row)
    if beside.refused:
        say(f"neighbours, {attack}: {beside.refused:,} refused: {beside.words[:300]}")
    return rows
