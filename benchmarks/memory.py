"""Memory under a backlog: it must not grow with it, and the emulator's does."""

import json
import time

from benchmarks.bench import Bench, Place, fresh_place, say
from benchmarks.report import Row, number
from benchmarks.servers import Broker, Emulator, Server
from benchmarks.throughput import fill
from benchmarks.wire import Connection, LoadFailed, build_request

_MEGABYTE = 1e6
_MARK = 1.2  # the largest backlog : the smallest; a process's memory breathes a little by itself
_SETTLE_SECONDS = 2.0
_EMULATOR_MARK, _MARKED_BACKLOG = 0.1, 1_000_000  # ours : the emulator's, with so many messages
_HEAPS = ("", "1g")  # of the emulator: as gcloud starts it, that is a quarter of the machine's memory; the least


def memory(bench: Bench) -> list[Row]:
    """A broker of its own; a backlog grown step by step; at each step its memory, and a pull that must work.

    The emulator has the first step alone; its heap ends before the others.
    """
    rows: list[Row] = []
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        start = broker.memory_bytes()
        with fresh_place(broker) as place:
            held = 0
            for backlog in sorted(bench.options.backlog):
                fill(broker, place, backlog - held)
                held = backlog
                rows.append(_row(broker, place, backlog))
        rows[0].note += f"; at start {number(start['python'] / _MEGABYTE)} MB"
        first, last = rows[0].ours, rows[-1].ours
        if len(rows) > 1 and first and last:
            rows[-1].ratio = last / first
            rows[-1].mark, rows[-1].lower_is_better = _MARK, True
            rows[-1].note += "; ratio: to the smallest backlog"
    except LoadFailed as error:
        rows.append(Row(measure="memory with a backlog", unit="MB", error=f"broker: {error}"))
    finally:
        broker.stop()
    if rows and bench.emulator is not None:
        _hold_against_the_emulator(rows[0], bench.emulator, min(bench.options.backlog))
    return rows


def _hold_against_the_emulator(row: Row, emulator: Emulator, backlog: int) -> None:
    """The ratio is to the emulator as gcloud starts it; the note has it with the smallest heap, too."""
    row.mark, row.lower_is_better = _EMULATOR_MARK if backlog == _MARKED_BACKLOG else None, True
    for heap in _HEAPS:
        another = emulator.with_heap(heap)
        name = f"emulator with -Xmx{heap}" if heap else "emulator with its own heap size"
        try:
            used = _emulator_memory(another, backlog) / _MEGABYTE
        except LoadFailed as error:
            row.note += f"; {name}: cannot hold it ({error}, {another.last_words})"
            continue
        finally:
            another.stop()
        say(f"memory, backlog of {backlog:,}, {name}: {used:,.0f} MB")
        row.note += f"; {name} {number(used)} MB"
        row.rounds[name] = [used]
        if not heap and row.ours:
            row.emulator, row.ratio = used, row.ours / used


def _emulator_memory(emulator: Emulator, backlog: int) -> int:
    """Resident bytes of an emulator of its own that was given so many messages.  Raises LoadFailed."""
    emulator.start()
    with fresh_place(emulator) as place:
        fill(emulator, place, backlog)
        _pull(emulator, place)
        time.sleep(_SETTLE_SECONDS)
        return sum(emulator.memory_bytes().values())


def _row(broker: Broker, place: Place, backlog: int) -> Row:
    time.sleep(_SETTLE_SECONDS)
    used = broker.memory_bytes()
    pulled, seconds = _pull(broker, place)
    say(f"memory, backlog of {backlog:,}: {used['python'] / _MEGABYTE:,.0f} MB")
    return Row(
        measure=f"memory, backlog of {backlog:,}",
        unit="MB",
        ours=used["python"] / _MEGABYTE,
        rounds={program: [value / _MEGABYTE] for program, value in used.items()},
        note=f"PostgreSQL {number(used['postgres'] / _MEGABYTE)} MB; "
        f"a pull then gave {pulled:,} messages in {seconds * 1000:.0f} ms",
    )


def _pull(server: Server, place: Place) -> tuple[int, float]:
    """Pull once (the messages stay out).  Returns how many came and how long it took.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    try:
        began = time.monotonic()
        path = f"/v1/{place.subscriptions[0]}:pull"
        answer = json.loads(connection.call(build_request("POST", path, b'{"maxMessages":1000}')))
        pulled = len(answer.get("receivedMessages", []))
        if not pulled:
            raise LoadFailed("a pull on a backlog gave nothing")
        return pulled, time.monotonic() - began
    finally:
        connection.close()
