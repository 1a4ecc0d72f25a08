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
from benchmarks.push_wide import SUBSCRIPTIONS, create_wide, one_message_to_all
from benchmarks.report import Row
from benchmarks.servers import Broker
from benchmarks.statement_log import StatementLog
from benchmarks.wire import LoadFailed

_SPAN_SECONDS = 60.0  # of each of the two measurements: some jobs run once a minute
_SETTLE_SECONDS = 30.0  # two passes of the sampler
_TABLES = re.compile(r"\b(?:history_(?:points|series)|lag_(?:samples|orders|passes))\b")
_WRITTEN = b"SELECT coalesce(sum(pg_column_size(p.*)), 0)::int8 FROM history_points AS p WHERE resolution = 10"
_WAL = b"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8"


def idle(bench: Bench) -> list[Row]:
    """A broker of its own, which nobody calls; ours alone."""
    rows: list[Row] = []
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        rows += _rows(broker, "no subscription")
        create_wide(broker, SUBSCRIPTIONS)
        rows += _rows(broker, f"{SUBSCRIPTIONS:,} subscriptions at rest")
        call_each(broker, [one_message_to_all()])
        wait_until_sampled(broker)
        rows += _rows(broker, f"{SUBSCRIPTIONS:,} subscriptions that lag")
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
    used = {program: (seconds - before[program]) for program, seconds in broker.cpu_seconds().items()}
    with database_connection(broker.database_url) as connection, StatementLog(broker) as log:
        written, wal = _number(connection, _WRITTEN), _number(connection, _WAL)
        log.skip()
        time.sleep(_SPAN_SECONDS)
        texts = log.read()
        written, wal = _number(connection, _WRITTEN) - written, _number(connection, _WAL) - wal
    per_minute = 60.0 / _SPAN_SECONDS
    ours = sum(bool(_TABLES.search(text)) for text in texts)
    rows = [
        Row(measure=f"idle, {name}: {program}", unit="ms/min", ours=seconds * 1000 * per_minute)
        for program, seconds in sorted(used.items())
    ]
    most = ", ".join(f"{text[:60]} {count}" for text, count in Counter(texts).most_common(5))
    rows.append(Row(measure=f"idle, {name}: statements", unit="a minute", ours=len(texts) * per_minute))
    rows[-1].note = f"{ours * per_minute:g} of these name tables of the lag board or the history"
    rows.append(Row(measure=f"idle, {name}: points of the history", unit="bytes/min", ours=written * per_minute))
    rows.append(Row(measure=f"idle, {name}: write-ahead log", unit="KB/min", ours=wal / 1000 * per_minute))
    for row in rows:
        say(f"{row.measure}: {row.ours:,.0f} {row.unit} {row.note}")
    say(f"  the most frequent: {most}")
    return rows


def _number(connection: "psycopg.Connection[tuple[object, ...]]", query: bytes) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]
