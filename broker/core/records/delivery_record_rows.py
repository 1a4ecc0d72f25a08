"""Writes the record of deliveries, and drops old rows.  Only this module writes `delivery_records`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from psycopg.errors import CheckViolation

from broker.core.log.partitions import (
    RECORDS,
    PartitionMissing,
    drop_detached_leftovers,
    drop_partition,
    list_partitions,
)
from broker.core.records.delivery_record import MAX_TEXT, RecordRow
from broker.db.driver import statements
from broker.db.driver.binary import OIDS, array
from broker.db.driver.by_shard import in_one_statement
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import Bound, HotConnection

_INSERT = statements.hot("insert_delivery_records")

_READ_OLDEST_STRAGGLER = b"SELECT min(publish_time) FROM straggler_batches"


async def insert_records(
    connection: HotConnection, rows: Mapping[int, Sequence[RecordRow]], *, now: datetime
) -> None:
    """Write rows, by shard, of acknowledgements up to `now`.  Raises PartitionMissing; nothing is written then."""
    try:
        for shard_ids in in_one_statement(connection, rows):
            await connection.run(_insertion({shard_id: rows[shard_id] for shard_id in shard_ids}, now))
    except CheckViolation as error:
        raise PartitionMissing from error


def _insertion(rows: Mapping[int, Sequence[RecordRow]], now: datetime) -> Bound:
    every = list(chain.from_iterable(rows.values()))
    entries = [len(row.entries).to_bytes(4, "big") + row.entries for row in every]
    return _INSERT, {
        "now": now,
        "shard_ids": [shard_id for shard_id, some in rows.items() for _ in some],
        "subscription_ids": [row.subscription_id for row in every],
        "buckets": [row.bucket for row in every],
        "principals": [_text(row.by.author.principal) for row in every],
        "clients": [_text(row.by.author.client) for row in every],
        "answers": [_text(row.by.answer) for row in every],
        "entries": array(OIDS["bytea"], entries, len(entries)),
    }


def _text(text: str) -> str:
    """Returns the text as PostgreSQL accepts it: a client may have any name."""
    return text.replace("\x00", "")[:MAX_TEXT]


async def drop_old_records(connection: Connection, *, now: datetime, kept: timedelta) -> int:
    """Drop the partitions that are older than `kept`, and than every message that is still retained.

    Returns how many.  A message was published before it was acknowledged, so what was recorded before the oldest
    retained message was published is about messages that are gone.
    """
    await drop_detached_leftovers(connection, RECORDS)
    oldest = [partition.start for partition in (await list_partitions(connection))[:1]]
    row = await (await connection.execute(_READ_OLDEST_STRAGGLER)).fetchone()
    if row is not None and row[0] is not None:
        oldest.append(row[0])
    until = min([now - kept, *oldest])
    dropped = 0
    for partition in await list_partitions(connection, RECORDS):
        if partition.end <= until or partition.detaching:
            dropped += await drop_partition(connection, partition, RECORDS)
    return dropped
