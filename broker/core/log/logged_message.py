"""Reads one message from the log."""

from datetime import datetime
from typing import NamedTuple

from broker.core.log.message_ids import sequence_of
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection

_FIND_MESSAGE = statements.hot("find_message")


class LoggedMessage(NamedTuple):
    """`attributes` is JSON text; `id_seq`: what its id is made of (None: `seq`).  It is not delivered from
    `expires_at` on (None: that is never).
    """

    shard_id: int
    seq: int
    publish_time: datetime
    ordering_key: str | None
    attributes: str
    data: bytes
    id_seq: int | None = None
    expires_at: datetime | None = None


async def read_message(connection: HotConnection, *, shard_id: int, id_seq: int) -> LoggedMessage | None:
    """A message that is still in the log, by what its id is made of; None: it is not, or never was."""
    seq = await sequence_of(connection, shard_id=shard_id, id_seq=id_seq)
    if seq is None:
        return None
    [rows] = await connection.run((_FIND_MESSAGE, {"shard_id": shard_id, "seq": seq}))
    return LoggedMessage(shard_id, seq, *rows[0]) if rows else None
