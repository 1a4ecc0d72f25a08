"""Returns which messages of the log were retracted (J6)."""

from collections.abc import Collection

from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_READ_RETRACTED = statements.hot("read_retracted")


async def read_retracted(connection: HotConnection, *, shard_id: int, seqs: Collection[int]) -> set[int]:
    """Returns the sequences that were retracted."""
    [rows] = await connection.run((_READ_RETRACTED, {"shard_id": shard_id, "seqs": list(seqs)}))
    return {row.seq for row in rows}
