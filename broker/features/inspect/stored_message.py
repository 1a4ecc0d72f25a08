"""Reads a message from where it is stored: the delayed messages or the log."""

from dataclasses import replace

from broker.core.log.logged_message import LoggedMessage, read_message
from broker.db.driver.hot_connection import HotConnection
from broker.features.delayed.delay import ScheduledMessage
from broker.features.delayed.listed_rows import read_scheduled
from broker.model.message_id import FIRST_ID_SEQ


async def read_stored(
    hot: HotConnection, *, shard_id: int, id_seq: int, offset: int = 0, max_bytes: int
) -> LoggedMessage | ScheduledMessage | None:
    """Returns a message with at most `max_bytes` of its data, from `offset` on, or None if it is not stored.

    Looks among the delayed messages first: a message moves from there to the log, and never back.
    """
    waiting = await read_scheduled(hot, shard_id=shard_id, id_seq=id_seq) if id_seq > FIRST_ID_SEQ else None
    if waiting is not None:
        return replace(waiting, data=(waiting.data or b"")[offset : offset + max_bytes])
    return await read_message(hot, shard_id=shard_id, id_seq=id_seq, offset=offset, max_bytes=max_bytes)
