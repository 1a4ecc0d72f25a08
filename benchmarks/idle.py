"""What a broker costs while nobody calls it: with no subscription, with 10,000 at rest, and with 10,000 that lag.

The lag board and the history are on, as always.  Processor time is of a span without PostgreSQL's log,
statements and bytes are of another one with it.
"""

import re
import time
from collections import Counter

import psycopg

from benchmarks.backlog import database_connection
from benchmarks.bench import Bench, call_each, say
from benchmarks.console import wait_until_sampled
from benchmarks.push_wide import create_wide, one_message_to_all
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.statement_log import StatementLog
from benchmarks.wire import LoadFailed

_SPAN_SECONDS = 60.0  # of each of the two measurements: some jobs run once a minute
_SETTLE_SECONDS = 45.0  # passes of the sampler
_TABLES = re.compile(r"\b(?:history_(?:points|series)|lag_(?:samples|orders|passes))\b")
_POINTS = b"SELECT coalesce(sum(pg_column_size(p.*)), 0)::int8 FROM history_points AS p WHERE resolution = 10"
_WAL = b"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8"


def idle(bench: Bench) -> list[Row]:
    """A broker of its own, which nobody calls; ours alone."""
    rows: list[Row] = []
    broker, count = Broker(bench.options.workers), bench.options.subscriptions
    try:
        bench.use(broker)
        rows += _rows(broker, "no subscription")
        create_wide(broker, count)
        wait_until_sampled(broker, "NOT_SAMPLED")
        rows += _rows(broker, f"{count:,} subscriptions at rest")
        call_each(broker, [one_message_to_all()])
        wait_until_sampled(broker, "NOT_SAMPLED", "CAUGHT_UP")
        rows += _rows(broker, f"{count:,} subscriptions that lag")
    except LoadFailed as error:
        say(f"idle: FAILED: {error}")
        rows.append(Row(measure="idle", unit="", error=f"broker: {error}"))
    finally:
        broker.stop()
    return rows


def _rows(broker: Broker, name: str) -> list[Row]:
    time.sleep(_SETTLE_SECONDS)
    before = broker.cpu_seconds()
    time.sleep(_SPAN_SECONDS)
    used = {program: seconds - before.get(program, 0.0) for program, seconds in broker.cpu_seconds().items()}
    with database_connection(broker.database_url) as connection, StatementLog(broker) as log:
        points, wal = _number(connection, _POINTS), _number(connection, _WAL)
        log.skip()
        time.sleep(_SPAN_SECONDS)
        texts = log.read()
        points, wal = _number(connection, _POINTS) - points, _number(connection, _WAL) - wal
    ours = sum(bool(_TABLES.search(text)) for text in texts)
    figures = [(program, "ms/s", seconds * 1000) for program, seconds in sorted(used.items())]
    figures += [
        ("statements", "a second", float(len(texts))),
        ("points of the history", "bytes/s", float(points)),
        ("write-ahead log", "bytes/s", float(wal)),
    ]
    rows = []
    for what, unit, value in figures:
        row = Row(measure=f"idle, {name}: {what}", unit=unit, ours=value / _SPAN_SECONDS, lower_is_better=True)
        if what == "statements":
            row.note = f"{ours / _SPAN_SECONDS:.2f} of these name tables of the lag board or the history"
        say(f"{row.measure}: {number(row.ours)} {unit} {row.note}")
        rows.append(row)
    most = ", ".join(f"{text[:60]!r} {count}" for text, count in Counter(texts).most_common(5))
    say(f"  the most frequent: {most}")
    return rows


def _number(connection: "psycopg.Connection[tuple[object, ...]]", query: bytes) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]
