"""Reads a message where it is stored: where it waits for its time, or in the log."""

from dataclasses import replace

from broker.core.log.logged_message import LoggedMessage, read_message
from broker.db.driver.hot_connection import HotConnection
from broker.features.delayed.delay import ScheduledMessage
from broker.features.delayed.listed_rows import read_scheduled
from broker.model.message_id import FIRST_ID_SEQ


async def read_stored(
    hot: HotConnection, *, shard_id: int, id_seq: int, offset: int = 0, max_bytes: int
) -> LoggedMessage | ScheduledMessage | None:
    """The message with `max_bytes` of its data, from `offset` on; None: it is not stored.

    Looks where it waits for its time first: until the second look it may be published, but it never goes back.
    """
    waiting = await read_scheduled(hot, shard_id=shard_id, id_seq=id_seq) if id_seq > FIRST_ID_SEQ else None
    if waiting is not None:
        return replace(waiting, data=(waiting.data or b"")[offset : offset + max_bytes])
    return await read_message(hot, shard_id=shard_id, id_seq=id_seq, offset=offset, max_bytes=max_bytes)
