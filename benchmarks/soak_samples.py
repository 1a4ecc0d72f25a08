"""What grows while a broker runs: memory, tables, WAL; looked at once a minute."""

from dataclasses import dataclass, field

import psycopg

from benchmarks import bench
from benchmarks.latency import percentile
from benchmarks.load_spec import Result
from benchmarks.servers import Broker
from benchmarks.wire import LoadFailed

LOG = "message_batches"
TABLES = (LOG, "delivery_attempts", "cursors", "shards")
_MEGABYTE = 1e6
# A table and what is below it: partitions, and for the log what was moved aside.
_SIZES = b"""
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::float8, coalesce(sum(pg_indexes_size(c.oid)), 0)::float8,
       coalesce(sum(t.n_dead_tup), 0)::int8, count(*)
FROM pg_class AS c
LEFT JOIN pg_stat_user_tables AS t ON t.relid = c.oid
WHERE c.oid = to_regclass(%(table)s)
   OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(%(table)s))
   OR %(table)s = 'message_batches' AND c.oid = to_regclass('straggler_batches')
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a table with its partitions: megabytes, dead rows, and how many relations it is made of."""

    table: float
    indexes: float
    dead: int
    relations: int

    @property
    def all(self) -> float:
        return self.table + self.indexes


@dataclass(frozen=True, slots=True)
class Sample:
    """One interval; rates in messages a second, latencies in ms, memory and sizes in MB, WAL in bytes a message."""

    minute: float
    published: float
    drained: float
    p50: float | None
    p99: float | None
    python: float
    postgres: float
    wal: float
    waiting: int  # messages published and not yet drained
    cpu: float  # µs of the broker's processor time for a message, PostgreSQL's included
    others: float  # processors busy with something else
    sizes: dict[str, Size] = field(default_factory=dict)

    @property
    def dead(self) -> int:
        return sum(size.dead for size in self.sizes.values())


class Sampler:
    """Looks at a broker and its database.  `begin` an interval, `end` it."""

    def __init__(self, broker: Broker, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        self._broker = broker
        self._connection = connection
        self._wal = 0

    def begin(self) -> None:
        self._wal = self._wal_position()

    def end(self, minute: float, published: Result, drained: Result, used: bench.Sample, waiting: int) -> Sample:
        """Raises LoadFailed."""
        memory = self._broker.memory_bytes()
        return Sample(
            minute=minute,
            published=published.messages / (published.ended - published.started),
            drained=drained.messages / max(drained.ended - drained.started, 1e-3),
            p50=percentile(published.publish_seconds, 50),
            p99=percentile(published.publish_seconds, 99),
            python=memory.get("python", 0) / _MEGABYTE,
            postgres=memory.get("postgres", 0) / _MEGABYTE,
            waiting=waiting,
            cpu=sum(used.cpu.values()),
            others=used.others,
            wal=(self._wal_position() - self._wal) / published.messages,
            sizes={table: self._size(table) for table in TABLES},
        )

    def _size(self, table: str) -> Size:
        row = self._connection.execute(_SIZES, {"table": table}).fetchone()
        assert row is not None
        heap, indexes, dead, relations = row
        if not relations:
            raise LoadFailed(f"there is no table {table}")
        assert isinstance(heap, float)
        assert isinstance(indexes, float)
        assert isinstance(dead, int)
        assert isinstance(relations, int)
        return Size(heap / _MEGABYTE, indexes / _MEGABYTE, dead, relations)

    def _wal_position(self) -> int:
        row = self._connection.execute(b"SELECT (pg_current_wal_lsn() - '0/0')::int8").fetchone()
        assert row is not None
        assert isinstance(row[0], int)
        return row[0]


_HEADINGS = (
    "minute",
    "in/s",
    "out/s",
    "waiting",
    "p50 ms",
    "p99 ms",
    "python MB",
    "postgres MB",
    "WAL B/message",
    "dead rows",
    "µs/message",
    "others",
)


def heading() -> str:
    """Of the lines: a Markdown table; of each table its size and that of its indexes, in MB."""
    names = [*_HEADINGS, *(f"{table} MB + indexes" for table in TABLES), "partitions"]
    return "| " + " | ".join(names) + " |\n|" + "---|" * len(names)


def line(sample: Sample) -> str:
    sizes = [f"{size.table:,.1f} + {size.indexes:,.1f}" for size in sample.sizes.values()]
    cells = [
        f"{sample.minute:g}",
        f"{sample.published:,.0f}",
        f"{sample.drained:,.0f}",
        f"{sample.waiting:,}",
        *("" if value is None else f"{value:.2f}" for value in (sample.p50, sample.p99)),
        f"{sample.python:,.0f}",
        f"{sample.postgres:,.0f}",
        f"{sample.wal:,.0f}",
        f"{sample.dead:,}",
        f"{sample.cpu:.2f}",
        f"{sample.others:.1f}",
        *sizes,
        str(sample.sizes[LOG].relations - 2),  # but for the parent, and for what was moved aside
    ]
    return "| " + " | ".join(cells) + " |"
