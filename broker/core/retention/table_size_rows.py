"""The size of the broker's tables, measured by one process for all that have the same limit."""

from datetime import datetime, timedelta
from typing import NamedTuple

from psycopg.rows import class_row

from broker.db.driver.database import Connection
from broker.db.driver.locks import MEASURING, try_lock

_FORGOTTEN = timedelta(days=1)  # a limit that no broker has had for so long is deleted

_READ = b"SELECT size_bytes, is_full, next_at FROM table_sizes WHERE max_bytes = %s"
_WRITE = b"""
    INSERT INTO table_sizes (max_bytes, size_bytes, is_full, measured_at, next_at) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (max_bytes) DO UPDATE SET size_bytes = excluded.size_bytes, is_full = excluded.is_full,
        measured_at = excluded.measured_at, next_at = excluded.next_at
"""
_FORGET = b"DELETE FROM table_sizes WHERE measured_at < %s"


class Measured(NamedTuple):
    """`next_at`: when it is to be measured again."""

    size_bytes: int
    is_full: bool
    next_at: datetime


async def read_measured(connection: Connection, *, max_bytes: int) -> Measured | None:
    """The last measurement for brokers with this limit; None: there is none."""
    async with connection.cursor(row_factory=class_row(Measured)) as cursor:
        await cursor.execute(_READ, [max_bytes])
        return await cursor.fetchone()


async def is_our_turn_to_measure(connection: Connection) -> bool:
    """Takes the turn to measure until the transaction ends.  Returns False if another process has it."""
    return await try_lock(connection, MEASURING)


async def write_measured(connection: Connection, measured: Measured, *, max_bytes: int, now: datetime) -> None:
    await connection.execute(_WRITE, [max_bytes, measured.size_bytes, measured.is_full, now, measured.next_at])
    await connection.execute(_FORGET, [now - _FORGOTTEN])
