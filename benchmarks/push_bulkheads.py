"""Bulkheads: endpoints that hang must not be felt by those that answer (C6)."""

from collections.abc import Sequence

from benchmarks.bench import Bench, fresh_place, say
from benchmarks.latency import percentile
from benchmarks.push import new_lane, paced_delays
from benchmarks.report import Row
from benchmarks.servers import Sink
from benchmarks.wire import LoadFailed

_ENDPOINTS = 50  # that answer; and that hang
_PACE = 10.0  # publishes a second, each to all endpoints
_LONGER = 2  # a round lasts so many times --seconds
_MARK = 1.25  # p50 with : without


def bulkheads(bench: Bench) -> list[Row]:
    """50 endpoints that answer, alone and beside 50 that hang, by turns; ours alone."""
    sink, broker = Sink(), bench.broker
    delays: dict[bool, list[float]] = {False: [], True: []}
    error = ""
    try:
        bench.use(sink)
        bench.use(broker)
        for number in range(bench.options.rounds + 1):
            for hanging in (False, True) if number % 2 else (True, False):
                taken = _round(bench, sink, hanging)
                delays[hanging] += taken if number else []
            say(f"bulkheads, {f'round {number}' if number else 'warm-up'}: done")
    except LoadFailed as failure:
        error = f"broker: {failure}"
        say(f"bulkheads: FAILED: {error}")
    finally:
        sink.stop()
    return _rows(delays[False], delays[True], error)


def _round(bench: Bench, sink: Sink, hanging: bool) -> Sequence[float]:
    lane = new_lane("bulkheads")
    seconds = bench.options.seconds * _LONGER
    with fresh_place(bench.broker, _ENDPOINTS, endpoint=sink.url(lane)) as place:
        if hanging:
            with fresh_place(bench.broker, _ENDPOINTS, endpoint=sink.url(lane, hang=True), topic=place.topic):
                return paced_delays(bench.broker, sink, place, lane, _PACE, seconds, _ENDPOINTS)
        return paced_delays(bench.broker, sink, place, lane, _PACE, seconds, _ENDPOINTS)


def _rows(alone: Sequence[float], beside: Sequence[float], error: str) -> list[Row]:
    rows = []
    for percent in (50, 99):
        name = f"publish → push to {_ENDPOINTS} endpoints at {_PACE:g}/s"
        rows.append(Row(measure=f"{name}, p{percent}", unit="ms", ours=percentile(alone, percent), error=error))
        row = Row(measure=f"{name} beside {_ENDPOINTS} that hang, p{percent}", unit="ms", error=error)
        row.ours, row.lower_is_better = percentile(beside, percent), True
        row.mark = _MARK if percent == 50 else None
        row.ratio = row.ours / rows[-1].ours if row.ours and rows[-1].ours else None
        row.note = f"ratio: with : without; {len(beside):,} samples"
        rows.append(row)
    return rows
