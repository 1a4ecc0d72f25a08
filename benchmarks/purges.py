"""Purges (G2): of a subscription, and of a topic, whatever waits there.  Ours alone: nobody else has them.

The backlog is published through the API, so that what is purged is what a broker has written.
"""

import json
import statistics
import time
from collections.abc import Sequence

from benchmarks.bench import Bench, Place, fresh_place, say
from benchmarks.calls import pull
from benchmarks.report import Row, number
from benchmarks.servers import Broker, Server
from benchmarks.throughput import fill
from benchmarks.wire import Connection, LoadFailed, build_request

_SMALL = 10_000
_SUBSCRIPTIONS = 7  # each is purged once: there is nothing left for a second time
_MARK = 2.0

Samples = dict[int, list[float]]  # milliseconds, by the size of the backlog


def purges(bench: Bench) -> list[Row]:
    """With 10,000 messages, a tenth of `--claims-backlog`, and all of it: `--rounds` topics of each."""
    largest = bench.options.claims_backlog
    sizes = sorted({min(_SMALL, largest // 10), largest // 10, largest})
    broker = Broker(bench.options.workers)
    subscription: Samples = {size: [] for size in sizes}
    topic: Samples = {size: [] for size in sizes}
    error = ""
    try:
        bench.use(broker)
        for size in sizes[:1] + sizes * bench.options.rounds:  # the first warms up
            with fresh_place(broker, _SUBSCRIPTIONS) as place:
                fill(broker, place, size)
                subscription[size] += _purge_each(broker, place, size)
            with fresh_place(broker) as place:
                fill(broker, place, size)
                topic[size] += _purge_each(broker, Place(place.topic, [place.topic]), size, place.subscriptions[0])
    except LoadFailed as failure:
        error = f"broker: {failure}"
    finally:
        broker.stop()
    return [_row("purge of a subscription", subscription, error), _row("purge of a topic", topic, error)]


def _purge_each(server: Server, place: Place, size: int, emptied: str = "") -> list[float]:
    """Milliseconds of each purge, of what is named as the place's subscriptions.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    taken = []
    for name in place.subscriptions:
        request = build_request("POST", f"/v1/{name}:purge")
        began = time.perf_counter()
        connection.call(request)
        taken.append((time.perf_counter() - began) * 1000)
        if json.loads(connection.call(pull(emptied or name))):
            raise LoadFailed(f"{name} was purged, and still has messages")
    connection.close()
    say(f"purge, {size:,}: {', '.join(map(number, taken))} ms")
    return taken


def _row(measure: str, samples: Samples, error: str) -> Row:
    """`ours` is the median with the largest backlog; the ratio is to that with the smallest."""
    row = Row(
        measure=f"{measure} with {max(samples):,} messages, p50", unit="ms", lower_is_better=True, error=error
    )
    row.mark = _MARK
    row.rounds = {f"{size:,}": taken for size, taken in samples.items()}
    medians = [statistics.median(taken) for _, taken in sorted(samples.items()) if taken]
    figures = [f"{size:,}: {_figures(taken)}" for size, taken in sorted(samples.items()) if taken]
    row.note = f"{'; '.join(figures)}; ratio: most : fewest messages"
    if len(medians) == len(samples):
        row.ours, row.ratio = medians[-1], medians[-1] / medians[0]
    return row


def _figures(taken: Sequence[float]) -> str:
    return f"p50 {number(statistics.median(taken))}, most {number(max(taken))}"
