"""What the journal tells of one message for one subscription (F3)."""

from broker.domain.journal import BUCKET, Author, Entry, Event, settlement
from broker.store.driver import statements
from broker.store.driver.hot_connection import HotConnection

MAX_ENTRIES = 1_000  # of a message: the newest

_READ_JOURNAL = statements.hot("read_journal")


async def read_entries(connection: HotConnection, *, subscription_id: int, shard_id: int, seq: int) -> list[Entry]:
    """What happened to it, the oldest first; the newest MAX_ENTRIES of it."""
    asked = {
        "shard_id": shard_id,
        "subscription_id": subscription_id,
        "seq": seq,
        "bucket": seq // BUCKET,
        "limit": MAX_ENTRIES,
    }
    [rows] = await connection.run((_READ_JOURNAL, asked))
    return [
        Entry(row.time, Event(row.event), row.attempt, Author(row.principal, row.client), row.answer)
        for row in reversed(rows)
    ]


async def read_settlement(
    connection: HotConnection, *, subscription_id: int, shard_id: int, seq: int
) -> Entry | None:
    """How it was settled: acked, dead-lettered or sought past, when and by whom; None: that is not told."""
    entries = await read_entries(connection, subscription_id=subscription_id, shard_id=shard_id, seq=seq)
    return settlement(entries)
