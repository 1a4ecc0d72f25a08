"""What a change cost: this checkout's broker beside that of another one, by turns on the same machine."""

from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, fresh_place, say
from benchmarks.report import Row
from benchmarks.servers import Broker, BrokerOf
from benchmarks.side_by_side import (
    Side,
    side_by_side,
    take_drain,
    take_lone_publish,
    take_publish,
    take_through,
    take_waiting_pull,
)
from benchmarks.wire import LoadFailed

_SAME = 0.98


def before(bench: Bench) -> list[Row]:
    """Plain topics of two brokers, of which one is started by the commands of the checkout `--before`."""
    checkout = bench.options.before
    if not checkout:
        say("before: --before DIRECTORY says with which checkout to compare (after `make setup` there)")
        return [Row(measure="before", unit="", error="broker: --before DIRECTORY is missing")]
    then, now = BrokerOf(Path(checkout), bench.options.workers), Broker(bench.options.workers)
    takes = [take_publish, take_drain, take_through, take_lone_publish, take_waiting_pull]
    try:
        for server in (then, now):
            bench.use(server)
            bench.warm_up(server, bench.options.warm_up_seconds)
        sides = Side(then, partial(fresh_place, then)), Side(now, partial(fresh_place, now))
        rows = side_by_side(bench, takes, *sides, f"since {checkout}")
    except LoadFailed as error:
        say(f"before: FAILED: {error}")
        return [Row(measure="before", unit="", error=f"broker: {error}")]
    finally:
        now.stop()
        then.stop()
    for row in rows:
        if not row.lower_is_better:
            row.mark = _SAME
    return rows
