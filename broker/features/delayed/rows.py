"""Rows of scheduled messages: stored, published or cancelled (J1).

Deleting a row of `scheduled_messages` decides about its message: the transaction that deletes the row either
appends the message to the log, or the message is never delivered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
from psycopg.errors import CheckViolation

from broker.core.log.deleting import BATCH, run_behind_log, run_in_batches
from broker.core.log.messages import (
    EncodedMessages,
    append_statements,
    encode_messages,
    is_frozen,
)
from broker.core.log.partitions import PartitionMissing
from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import NOTHING_CHANGED, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.model.message import NewMessage

_FIND_SCHEDULED_SHARDS = statements.hot("find_scheduled_shards")
_LOCK_HEADS = statements.hot("lock_heads")
_TAKE_DUE_MESSAGES = statements.hot("take_due_messages")
_APPEND_DUE_MESSAGES = statements.hot("append_due_messages")
_INSERT_SCHEDULED_IDS = statements.hot("insert_scheduled_ids")
_CANCEL_SCHEDULED_MESSAGE = statements.hot("cancel_scheduled_message")
_MOVE_SCHEDULED_MESSAGE = statements.hot("move_scheduled_message")
_DELETE_CLOSED_SCHEDULES = statements.hot("delete_closed_schedules")
_DELETE_SCHEDULED_IDS = statements.load("delete_scheduled_ids")
_MARK_SCHEDULED_IDS = statements.load("mark_scheduled_ids")

MAX_DUE = 1_000  # messages that one transaction appends
MAX_DUE_BYTES = 8_000_000  # or about so many; the last may be larger
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class ScheduledShard:
    """A shard where messages wait: the first of them until `due_at`; not `open`: its topic is gone."""

    shard_id: int
    due_at: datetime
    open: bool


async def find_scheduled_shards(connection: HotConnection) -> list[ScheduledShard]:
    """Finds the shards with scheduled messages, without those of frozen topics."""
    [rows] = await connection.run((_FIND_SCHEDULED_SHARDS, {}))
    return [ScheduledShard(*row) for row in rows]


async def append_due(
    connection: HotConnection, *, shard_id: int, now: datetime, most: int = MAX_DUE, tried: list[int] | None = None
) -> list[datetime]:
    """Append messages whose time has come to a shard, and take them out of those that wait: both or neither.

    Waits for other processes that append to the shard.  Returns the times for which the messages were planned, none
    if there are none, or the shard takes nothing just now.  Raises PartitionMissing, or what one of them does not
    get by; nothing has changed then, and `tried` has what their ids are made of.
    """
    limits = {"max_messages": most, "max_bytes": MAX_DUE_BYTES}
    try:
        *_, rows = await connection.run(
            (BEGIN, {}),
            (_LOCK_HEADS, {"shard_ids": [shard_id]}),
            (_TAKE_DUE_MESSAGES, {"shard_id": shard_id, "now": now, **limits}),
        )
        if not rows:
            await connection.run(*NOTHING_CHANGED)
            return []
        rows.sort(key=attrgetter("due_at", "id_seq"))
        if tried is not None:
            tried += [row.id_seq for row in rows]
        if not await _append(connection, shard_id, rows, now):
            await connection.close()  # the topic was deleted a moment ago; another pass finds it so
            return []
        await connection.run((COMMIT, {}))
    except CheckViolation as error:
        await connection.close()
        if is_frozen(error):
            return []
        raise PartitionMissing from error
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    return [row.due_at for row in rows]


async def _append(connection: HotConnection, shard_id: int, rows: Sequence[Any], now: datetime) -> bool:
    id_seqs = [row.id_seq for row in rows]
    requests = [_request(list(run)) for _, run in groupby(rows, attrgetter("ordering_key"))]
    take, (_, batches) = append_statements(shard_id, requests, now)
    where = {"shard_id": shard_id, "count": len(rows), "id_seqs": id_seqs}
    taken, *_ = await connection.run(
        take, (_APPEND_DUE_MESSAGES, {**batches, "id_seqs": id_seqs}), (_INSERT_SCHEDULED_IDS, where)
    )
    return bool(taken)


def _request(rows: Sequence[Any]) -> EncodedMessages:
    """Their time to live counts from now on."""
    ttls = [row.ttl and timedelta(microseconds=row.ttl) for row in rows]
    return encode_messages([_message(row) for row in rows], (), ttls if any(ttls) else None)


def _message(row: Any) -> NewMessage:
    attributes = {} if row.attributes is None else _decode_attributes(row.attributes)
    return NewMessage(data=row.data, attributes=attributes, ordering_key=row.ordering_key or "")


async def delete_closed_schedules(connection: HotConnection, *, shard_id: int) -> None:
    """Deletes some of the scheduled messages in the shard of a topic that is deleted."""
    await connection.run((_DELETE_CLOSED_SCHEDULES, {"shard_id": shard_id, "limit": BATCH}))


async def cancel_scheduled(
    connection: HotConnection, *, shard_id: int, id_seq: int, now: datetime, by: str = ""
) -> bool:
    """Let a message never come; False: it does not wait (any more)."""
    wanted = {"shard_id": shard_id, "id_seq": id_seq, "now": now, "by": by}
    [rows] = await connection.run((_CANCEL_SCHEDULED_MESSAGE, wanted))
    return bool(rows)


async def move_scheduled(connection: HotConnection, *, shard_id: int, id_seq: int, due_at: datetime) -> bool:
    """Let a message come at another time; False: it does not wait (any more)."""
    wanted = {"shard_id": shard_id, "id_seq": id_seq, "due_at": due_at}
    [rows] = await connection.run((_MOVE_SCHEDULED_MESSAGE, wanted))
    return bool(rows)


async def delete_scheduled_ids(connection: Connection, *, now: datetime, kept: timedelta) -> int:
    """Mark the ids of messages that have left the log, and delete those marked longer than `kept` ago, for which
    they lead to what is recorded of the messages.  Returns how many were deleted.
    """
    await run_behind_log(connection, _MARK_SCHEDULED_IDS, {"now": now})
    return await run_in_batches(connection, _DELETE_SCHEDULED_IDS, {"before": now - kept}, batch=BATCH)
