"""What a change cost: this checkout's broker beside that of another one, by turns on the same machine."""

from pathlib import Path

from benchmarks.bench import Bench, say
from benchmarks.report import Row
from benchmarks.servers import Broker, BrokerOf
from benchmarks.side_by_side import plain_topics

_SAME = 0.98


def before(bench: Bench) -> list[Row]:
    """Plain topics of two brokers, of which one is started by the commands of the checkout `--before`."""
    checkout = bench.options.before
    if not checkout:
        say("before: --before DIRECTORY says with which checkout to compare (after `make setup` there)")
        return [Row(measure="before", unit="", error="broker: --before DIRECTORY is missing")]
    then, now = BrokerOf(Path(checkout), bench.options.workers), Broker(bench.options.workers)
    rows = plain_topics(bench, "before", then, now, f"since {checkout}")
    for row in rows:
        if not row.lower_is_better:
            row.mark = _SAME
    return rows
