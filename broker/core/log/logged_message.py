"""Reads one message from the log."""

from datetime import datetime
from typing import NamedTuple

from broker.core.log.message_ids import sequence_of
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.message_preview import WHOLE

_FIND_MESSAGE = statements.hot("find_message")


class LoggedMessage(NamedTuple):
    """`attributes` is JSON text; `id_seq`: what its id is made of (None: `seq`).  It is not delivered from
    `expires_at` on (None: that is never).  `data`: as much of it as was read; `data_size`: the length of all of it.
    """

    shard_id: int
    seq: int
    publish_time: datetime
    ordering_key: str | None
    attributes: str
    data: bytes
    id_seq: int | None = None
    expires_at: datetime | None = None
    data_size: int = 0


async def read_message(
    connection: HotConnection, *, shard_id: int, id_seq: int, offset: int = 0, max_bytes: int = WHOLE
) -> LoggedMessage | None:
    """A message that is still in the log, by what its id is made of; None: it is not, or never was.

    Reads `max_bytes` of its data, from `offset` on.
    """
    seq = await sequence_of(connection, shard_id=shard_id, id_seq=id_seq)
    if seq is None:
        return None
    asked = {"shard_id": shard_id, "seq": seq, "offset": offset, "max_bytes": max_bytes}
    [rows] = await connection.run((_FIND_MESSAGE, asked))
    return LoggedMessage(shard_id, seq, *rows[0]) if rows else None
