"""What every measure works with: the servers, the options, and how two servers are compared."""

import json
import resource
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.generators import Throughput
from benchmarks.peer_servers import Peer
from benchmarks.report import Row
from benchmarks.servers import Broker, Emulator, Server
from benchmarks.wire import Connection, LoadFailed, build_request

_PROJECT = "projects/bench"
_ACK_DEADLINE_SECONDS = 600  # nothing is to come again while a backlog is drained


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says.  `seconds` is how long one load of one round lasts."""

    rounds: int = 3
    seconds: float = 3.0
    backlog: tuple[int, ...] = (1_000_000, 3_000_000)
    claims_backlog: int = 10_000_000
    warm_up_seconds: float = 10.0  # after a start, before anything is measured: Java compiles what it finds hot
    topics: int = 1_000
    subscriptions: int = 10_000  # of console-pages and whole-lists
    spread_seconds: float = 60.0  # how long messages are published to many topics
    soak_minutes: float = 30.0
    workers: int = 1
    attacks: tuple[str, ...] = ()  # of neighbours; none: all
    attackers_elsewhere: bool = False  # of neighbours: they get the processor time that nobody else wants
    before: str = ""  # of before: a checkout, by its directory


@dataclass(slots=True)
class Bench:
    """One run: `broker` and `emulator` are started, and warmed up, by the first measure that needs them."""

    options: Options
    broker: Broker
    emulator: Emulator | None
    warm_up: Callable[[Server, float], None]  # loads a server for so many seconds; raises LoadFailed
    peers: Sequence[Peer] = ()
    kept_backlogs: dict[tuple[Path, int], str] = field(
        default_factory=dict
    )  # topics; peer_systems.py says of which
    started: list[Server] = field(default_factory=list)
    interrupted: bool = False  # set by a measure that reports what it had until then; no other is begun

    @property
    def servers(self) -> list[Server]:
        return [server for server in (self.broker, self.emulator) if server is not None]

    def use(self, server: Server) -> None:
        """Start a server unless it runs, also one that died; it is stopped at the end.  Raises LoadFailed."""
        if server.running:
            return
        say(f"starting {server.name}")
        if server not in self.started:
            self.started.append(server)
        server.start()
        if server in self.servers:
            self.warm_up(server, self.options.warm_up_seconds)

    def renew_emulator(self) -> None:
        """Stop the emulator, so that the next use starts a fresh one: it loses memory with every request."""
        if self.emulator is not None:
            self.emulator.stop()

    def close(self) -> None:
        for server in self.started:
            server.stop()


class Place(NamedTuple):
    """A topic and its subscriptions, by full names."""

    topic: str
    subscriptions: Sequence[str]


class Sample(NamedTuple):
    """One round: messages a second; processor time of the server for a message, in µs by program; and how many
    processors were busy with what is neither the server nor its load: a figure is worth little where it is not 0.
    """

    value: float
    cpu: Mapping[str, float]
    others: float


def say(text: str) -> None:
    """Progress, on standard error; the table alone goes to standard output."""
    print(text, file=sys.stderr, flush=True)


def place_with(
    server: Server, clients: Callable[[Place], AbstractContextManager[None]]
) -> Callable[[], AbstractContextManager[Place]]:
    """Return a function that makes a fresh place and runs clients beside it."""

    @contextmanager
    def place() -> Iterator[Place]:
        with fresh_place(server) as found, clients(found):
            yield found

    return place


@contextmanager
def fresh_place(server: Server, subscriptions: int = 1, *, endpoint: str = "", topic: str = "") -> Iterator[Place]:
    """A new topic with subscriptions, deleted at the end of the block with what they hold.  Raises LoadFailed.

    With `endpoint` they are push subscriptions; each has that URL with a slash and its number.  With `topic` they
    are subscriptions of that one, which stays.
    """
    name = f"bench-{uuid.uuid4().hex[:12]}"
    place = Place(
        topic or f"{_PROJECT}/topics/{name}",
        [f"{_PROJECT}/subscriptions/{name}-{number}" for number in range(subscriptions)],
    )
    requests = [] if topic else [build_request("PUT", f"/v1/{place.topic}")]
    for number, subscription in enumerate(place.subscriptions):
        body: dict[str, object] = {"topic": place.topic, "ackDeadlineSeconds": _ACK_DEADLINE_SECONDS}
        if endpoint:
            body["pushConfig"] = {"pushEndpoint": f"{endpoint}/{number}"}
        requests.append(build_request("PUT", f"/v1/{subscription}", json.dumps(body).encode()))
    call_each(server, requests)
    yield place
    gone = (*place.subscriptions, *([] if topic else [place.topic]))
    call_each(server, [build_request("DELETE", f"/v1/{resource}", b"") for resource in gone])


def call_each(server: Server, requests: Sequence[bytes]) -> None:
    """Send requests one after the other, on a connection of their own.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    try:
        for request in requests:
            connection.call(request)
    finally:
        connection.close()


def take_sample(server: Server, load: Callable[[], Throughput], *helpers: Server) -> Sample:
    """Run a load, counting the processor time that the server uses for it.  Raises LoadFailed.

    `helpers` belong to the load.
    """
    before, began = server.cpu_seconds(), time.monotonic()
    others_before = _others_seconds(server, *helpers)
    done = load()
    others = (_others_seconds(server, *helpers) - others_before) / (time.monotonic() - began)
    used = {program: seconds - before.get(program, 0.0) for program, seconds in server.cpu_seconds().items()}
    cpu = {program: seconds * 1e6 / done.messages for program, seconds in used.items() if seconds > 0}
    return Sample(done.per_second, cpu, max(0.0, others))


def _others_seconds(*servers: Server) -> float:
    """Processor time of the machine that neither the servers nor this process and its ended children have used."""
    machine = psutil.cpu_times()
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
    busy = sum(getattr(machine, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal"))
    return busy - own - sum(sum(server.cpu_seconds().values()) for server in servers)


Run = Callable[[Server], Sample]


def compare(bench: Bench, row: Row, run: Run) -> Row:
    """Fill a row: a warm-up round that is not counted, then rounds that alternate between the servers.

    A server that fails is left out of the remaining rounds; the row says so.
    """
    bench.renew_emulator()
    samples: dict[str, list[Sample]] = {server.name: [] for server in bench.servers}
    failures: dict[str, str] = {}
    for number in range(bench.options.rounds + 1):
        # The order turns round each time: whatever one server leaves behind (dirty pages, heat) meets both.
        for server in bench.servers if number % 2 else reversed(bench.servers):
            if server.name in failures:
                continue
            try:
                bench.use(server)
                sample = run(server)
            except LoadFailed as error:
                failures[server.name] = f"{error} ({server.last_words})" if server.started else str(error)
                say(f"{row.measure}, {server.name}: FAILED: {failures[server.name]}")
                continue
            if number:
                samples[server.name].append(sample)
            say(f"{row.measure}, {server.name}, {f'round {number}' if number else 'warm-up'}: {sample.value:,.0f}")
    _fill(row, samples, failures)
    return row


def _fill(row: Row, samples: Mapping[str, Sequence[Sample]], failures: Mapping[str, str]) -> None:
    row.rounds = {name: [sample.value for sample in taken] for name, taken in samples.items()}
    medians = {name: statistics.median(values) for name, values in row.rounds.items() if values}
    row.ours, row.emulator = medians.get("broker"), medians.get("emulator")
    if row.ours is not None and row.emulator:
        row.ratio = row.ours / row.emulator
    row.cpu = median_cpu(samples.get("broker", []))
    row.others = max((sample.others for taken in samples.values() for sample in taken), default=None)
    row.error = "; ".join(f"{name}: {error}" for name, error in failures.items())


def median_cpu(samples: Sequence[Sample]) -> dict[str, float]:
    """The median of each program's processor time over the rounds."""
    programs = {program for sample in samples for program in sample.cpu}
    return {p: statistics.median(sample.cpu.get(p, 0.0) for sample in samples) for p in programs}
