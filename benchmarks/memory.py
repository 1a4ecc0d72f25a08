"""Memory under a backlog: it must not grow with it."""

import json
import time

from benchmarks.bench import Bench, Place, fresh_place, say
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.throughput import fill
from benchmarks.wire import Connection, LoadFailed, build_request

_MEGABYTE = 1e6
_MARK = 1.2  # the largest backlog : the smallest; a process's memory breathes a little by itself
_SETTLE_SECONDS = 2.0


def memory(bench: Bench) -> list[Row]:
    """A broker of its own; a backlog grown step by step; at each step its memory, and a pull that must work.

    Ours alone: the emulator's heap ends long before.
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
    return rows


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


def _pull(broker: Broker, place: Place) -> tuple[int, float]:
    """Pull once (the messages stay out).  Returns how many came and how long it took.  Raises LoadFailed."""
    connection = Connection(broker.host, broker.port)
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
