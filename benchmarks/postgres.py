"""What PostgreSQL alone can do on this machine: the broker's own server, one connection, no broker between."""

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.wire import LoadFailed

_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_COPY_TRAILER = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_ROW_HEAD = struct.Struct("!h iq iq iq").pack  # six fields; shard_id, publish_time, seq with their lengths
_ATTRIBUTES = struct.pack("!i", 3) + b"\x01{}"  # jsonb version 1

_TABLES = """
CREATE TABLE commits (id int PRIMARY KEY, times bigint NOT NULL) WITH (fillfactor = 20);
INSERT INTO commits VALUES (1, 0);
CREATE TABLE copied (
    shard_id bigint, publish_time timestamptz, seq bigint, ordering_key text,
    attributes jsonb NOT NULL, data bytea NOT NULL, PRIMARY KEY (shard_id, publish_time, seq)
)
"""


@contextmanager
def scratch_connection(url: str) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    """A connection in autocommit mode to a schema of our own, removed at the end.  Raises LoadFailed."""
    try:
        with psycopg.connect(url, autocommit=True, prepare_threshold=0, dbname="postgres") as connection:
            connection.execute("DROP SCHEMA IF EXISTS benchmark CASCADE")
            connection.execute("CREATE SCHEMA benchmark")
            connection.execute("SET search_path = benchmark")
            for statement in _TABLES.split(";"):
                connection.execute(statement.encode())
            yield connection
            connection.execute("DROP SCHEMA benchmark CASCADE")
    except psycopg.Error as error:
        raise LoadFailed(f"PostgreSQL: {error}") from error


def time_commits(connection: "psycopg.Connection[tuple[object, ...]]", seconds: float) -> list[float]:
    """How long each of many one-row UPDATEs took, each prepared and in a transaction of its own, in seconds."""
    taken: list[float] = []
    stop = time.monotonic() + seconds
    while (before := time.monotonic()) < stop:
        connection.execute("UPDATE commits SET times = times + 1 WHERE id = 1", prepare=True)
        taken.append(time.monotonic() - before)
    return taken


def copy_rate(connection: "psycopg.Connection[tuple[object, ...]]", batch: int, size: int, seconds: float) -> float:
    """Messages a second by binary COPY into a table like `messages`, `batch` in each transaction."""
    connection.execute("TRUNCATE copied")
    pack = _packer(batch, size)
    copied = 0
    began = time.monotonic()
    with connection.cursor() as cursor:
        while (passed := time.monotonic() - began) < seconds:
            with cursor.copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
                copy.write(pack(copied))
            copied += batch
    return copied / passed


def _packer(batch: int, size: int) -> Callable[[int], bytes]:
    """Packs a whole COPY of `batch` rows that begin at a sequence; the data is made beforehand."""
    tail = _NULL + _ATTRIBUTES + struct.pack("!i", size) + os.urandom(size)

    def pack(first: int) -> bytes:
        rows = [_ROW_HEAD(6, 8, 1, 8, 0, 8, seq) + tail for seq in range(first, first + batch)]
        return b"".join([_COPY_HEADER, *rows, _COPY_TRAILER])

    return pack
