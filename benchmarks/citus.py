"""What Citus costs beside plain PostgreSQL on the same machine, and what nodes cost that are added (L1)."""

import statistics

from benchmarks.bench import Bench, Sample, fresh_place, median_cpu, say
from benchmarks.nodes import PROGRAMS, BrokerOnNodes
from benchmarks.report import Row, number
from benchmarks.side_by_side import (
    DRAIN,
    PUBLISH,
    WAITING_P50,
    Figure,
    Taken,
    plain_topics,
    take_drain,
    take_publish,
)
from benchmarks.wire import LoadFailed

_MARKS = {PUBLISH: 0.35, DRAIN: 0.5, WAITING_P50: 2.0}
_NODES, _PROCESSES = (0, 1, 2, 3), (1, 2)
_SHARDS = 12  # of a topic, so that they lie evenly on one, two or three nodes


def citus(bench: Bench) -> list[Row]:
    """By turns on a single server and on a coordinator with two nodes, both with the programs of one PostgreSQL."""
    return _beside_one_server(bench, "on Citus", by_way_of_nodes=False)


def citus_any_node(bench: Bench) -> list[Row]:
    """The same, with hot statements by way of the nodes."""
    return _beside_one_server(bench, "on Citus, by way of its nodes", by_way_of_nodes=True)


def _beside_one_server(bench: Bench, words: str, *, by_way_of_nodes: bool) -> list[Row]:
    if not PROGRAMS:
        return _absent("citus")
    workers = bench.options.workers
    plain = BrokerOnNodes(None, workers=workers)
    spread = BrokerOnNodes(2, workers=workers, by_way_of_nodes=by_way_of_nodes)
    rows = plain_topics(bench, "citus", plain, spread, words)
    marks = {f"{figure.name}, {words}": mark for figure, mark in _MARKS.items()}
    for row in rows:
        row.mark = marks.get(row.measure)
    return rows


def _absent(measure: str) -> list[Row]:
    say(f"{measure}: TEST_CITUS_BIN names no PostgreSQL with Citus")
    return [Row(measure=measure, unit="", error="broker: TEST_CITUS_BIN is not set")]


def citus_nodes(bench: Bench) -> list[Row]:
    """Nodes are added, and broker processes: what a message costs then, and whom.  Rounds by turns."""
    if not PROGRAMS:
        return _absent("citus-nodes")
    taken: dict[tuple[Figure, int, int], list[Sample]] = {}
    rows = []
    for _ in range(bench.options.rounds):
        for processes in _PROCESSES:
            for nodes in _NODES:
                try:
                    for figure, sample in _take(bench, nodes, processes).items():
                        taken.setdefault((figure, nodes, processes), []).append(sample)
                except LoadFailed as error:
                    rows.append(Row(measure=f"citus, {nodes} nodes", unit="", error=f"broker: {error}"))
    return [*(_row(*which, samples) for which, samples in sorted(taken.items(), key=_order)), *rows]


def _order(item: tuple[tuple[Figure, int, int], list[Sample]]) -> tuple[str, int, int]:
    (figure, nodes, processes), _ = item
    return figure.name, processes, nodes


def _take(bench: Bench, nodes: int, processes: int) -> Taken:
    server = BrokerOnNodes(nodes, workers=processes, shards=_SHARDS)
    try:
        bench.use(server)
        bench.warm_up(server, bench.options.warm_up_seconds)
        found: dict[Figure, Sample] = {}
        for take in (take_publish, take_drain):
            with fresh_place(server) as place:
                found |= take(server, place, bench.options.seconds)
        for figure, sample in found.items():
            say(f"{figure.name}, {nodes} nodes, {processes} processes: {number(sample.value)}")
        return found
    finally:
        server.stop()


def _row(figure: Figure, nodes: int, processes: int, samples: list[Sample]) -> Row:
    row = Row(measure=f"{figure.name}, {nodes} nodes, {processes} broker processes", unit=figure.unit)
    row.rounds = {"broker": [sample.value for sample in samples]}
    row.ours = statistics.median(row.rounds["broker"])
    row.cpu = median_cpu(samples)
    row.others = max(sample.others for sample in samples)
    database = {name: used for name, used in row.cpu.items() if name != "python"}
    whole = sum(row.cpu.values())
    row.note = (
        f"µs of processor a message: {whole:.2f}, of the database {sum(database.values()):.2f}, of the coordinator "
        f"{database.get('coordinator', 0.0):.2f}"
    )
    return row
