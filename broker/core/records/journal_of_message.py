"""The entries of the journal and of the record of deliveries about one message for one subscription (F3)."""

from broker.core.records.delivery_record import By, Recorded, find_in_row, with_recorded
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.journal import BUCKET, Author, Entry, Event, settlement

MAX_ENTRIES = 1_000  # of a message: the newest

_MAX_RECORDS = 20_000  # rows of a bucket, which has some thousand messages

_READ_JOURNAL = statements.hot("read_journal")
_READ_RECORDS = statements.hot("read_delivery_records")


async def read_entries(connection: HotConnection, *, subscription_id: int, shard_id: int, seq: int) -> list[Entry]:
    """Returns the entries of a message, the oldest first: the newest MAX_ENTRIES, and its acknowledgements."""
    bucket = seq // BUCKET
    where = {"shard_id": shard_id, "subscription_id": subscription_id, "bucket": bucket}
    attribution, records = await connection.run(
        (_READ_JOURNAL, {**where, "seq": seq, "limit": MAX_ENTRIES}),
        (_READ_RECORDS, {**where, "limit": _MAX_RECORDS}),
    )
    entries = [
        Entry(row.time, Event(row.event), row.attempt, Author(row.principal, row.client), row.answer)
        for row in reversed(attribution)
    ]
    recorded: list[Recorded] = []
    for row in records:
        by = By(Author(row.principal, row.client), row.answer)
        recorded += find_in_row(row.entries, bucket=bucket, seq=seq, recorded_at=row.recorded_at, by=by)
    return with_recorded(entries, recorded)


async def read_settlement(
    connection: HotConnection, *, subscription_id: int, shard_id: int, seq: int
) -> Entry | None:
    """Returns the entry that settled the message: acked, dead-lettered or sought past.

    None: there is no record of it.
    """
    entries = await read_entries(connection, subscription_id=subscription_id, shard_id=shard_id, seq=seq)
    return settlement(entries)
