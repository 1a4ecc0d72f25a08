"""What PostgreSQL alone can do on this machine: the broker's own server, one connection, no broker between.

The tables are the measure's own, a row per message: whatever becomes of the broker's, the limit stays what it was.
"""

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg

from benchmarks.wire import LoadFailed

_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_COPY_TRAILER = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_ROW_HEAD = struct.Struct("!h iq iq iq").pack  # six fields; shard_id, publish_time, seq with their lengths
_ATTRIBUTES = struct.pack("!i", 3) + b"\x01{}"  # jsonb version 1

_READ_ROWS = 200_000  # in the table that is read: it stays in memory, as the newest messages do
_READ = """
SELECT seq, publish_time, ordering_key, attributes::text, data
FROM copied
WHERE shard_id = 1 AND (publish_time, seq) >= (%(time)s, %(seq)s) AND publish_time >= %(time)s
ORDER BY publish_time, seq
LIMIT %(limit)s
"""

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
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
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


class _Message(msgspec.Struct, rename="camel", omit_defaults=True):
    data: bytes
    message_id: str
    publish_time: str
    ordering_key: str = ""
    attributes: msgspec.Raw | None = None


class _Received(msgspec.Struct, rename="camel"):
    ack_id: str
    message: _Message


def read_rate(connection: "psycopg.Connection[tuple[object, ...]]", batch: int, size: int, seconds: float) -> float:
    """Messages a second read in key order, `batch` at a time, each batch encoded as the body of a pull's answer."""
    connection.execute("TRUNCATE copied")
    pack = _packer(_READ_ROWS, size)
    with connection.cursor() as filling, filling.copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
        copy.write(pack(0))
    connection.execute("VACUUM (ANALYZE) copied")
    encode = msgspec.json.Encoder().encode
    time_, sequence, read = datetime(2000, 1, 1, tzinfo=UTC), 0, 0  # 0 in binary COPY is 2000-01-01
    began = time.monotonic()
    with connection.cursor(binary=True) as cursor:
        while (passed := time.monotonic() - began) < seconds:
            cursor.execute(_READ, {"time": time_, "seq": sequence, "limit": batch}, prepare=True)
            rows = cursor.fetchall()
            encode({"receivedMessages": _received(rows)})
            read += len(rows)
            sequence = (sequence + batch) % _READ_ROWS
    return read / passed


def _received(rows: Sequence[Any]) -> list[_Received]:
    head = "A" * 36  # an ack id has 40 characters
    printed: dict[datetime, str] = {}  # a batch has one publish time
    received = []
    for ordinal, (seq, publish_time, ordering_key, attributes, data) in enumerate(rows):
        if publish_time not in printed:
            printed[publish_time] = publish_time.isoformat()
        message = _Message(data, str(10**15 + seq), printed[publish_time], ordering_key or "")
        if attributes != "{}":
            message.attributes = msgspec.Raw(attributes)
        received.append(_Received(f"{head}{ordinal:04}", message))
    return received


def _packer(batch: int, size: int) -> Callable[[int], bytes]:
    """Packs a whole COPY of `batch` rows that begin at a sequence; the data is made beforehand."""
    tail = _NULL + _ATTRIBUTES + struct.pack("!i", size) + os.urandom(size)

    def pack(first: int) -> bytes:
        rows = [_ROW_HEAD(6, 8, 1, 8, 0, 8, seq) + tail for seq in range(first, first + batch)]
        return b"".join([_COPY_HEADER, *rows, _COPY_TRAILER])

    return pack
