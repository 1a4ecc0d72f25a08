"""Rows of the outbox: messages and acks that applications wrote in their own transactions (J7).

The transaction that deletes a row also appends its message to the log, so a process that is killed has done both
or neither.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec

from broker.core.log.appending import Answers, Batches, append_to_shards
from broker.core.log.deleting import BATCH, run_in_batches
from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import NOTHING_CHANGED, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT, NO_WAIT, Statement
from broker.model.message import NewMessage

_READ_OUTBOX_HEAD = statements.hot("read_outbox_head")
_FIND_OUTBOX_ROWS = statements.hot("find_outbox_rows")
_TAKE_OUTBOX_MESSAGES = statements.hot("take_outbox_messages")
_TAKE_OUTBOX_ACKS = statements.hot("take_outbox_acks")
_REFUSE_OUTBOX_MESSAGES = statements.hot("refuse_outbox_messages")
_NOTE_OUTBOX_PROGRESS = statements.hot("note_outbox_progress")
_DELETE_REFUSED_MESSAGES = statements.load("delete_refused_messages")

MAX_ROWS = 1_000  # that one pass finds, and one transaction relays
MAX_BYTES = 8_000_000  # or about so many; the last may be larger
# A log that is locked for longer keeps its messages for the next pass, and those of others do not wait for it.
_SHORT_WAIT = Statement(b"short_wait", b"SET LOCAL lock_timeout = '300ms'")
_REFUSED_DAYS, _MOST_REFUSED = 7, 100_000
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Since:
    """A pass whose finds have all been taken (find_outbox_rows.sql); the first pass of a process is since ever."""

    floor: int = 0
    xids: Sequence[int] = ()
    xmax: int = 0


EVER = Since()


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message for a topic, written by the transaction `xid`; `role` called the function."""

    n: int
    xid: int
    role: str
    written_at: datetime
    topic: str
    topic_id: int
    size: int
    message: NewMessage


@dataclass(frozen=True, slots=True)
class OutboxAcks:
    """Acks of a subscription, or nacks."""

    n: int
    role: str
    written_at: datetime
    subscription: str
    subscription_id: int
    size: int
    ack_ids: Sequence[str]
    is_nack: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that a query found, by number, which is the order of the calls.

    `since`: for the next pass, if no rows of this one are left.  `complete`: these are all visible rows;
    `relayed_to`: the stored progress.
    """

    messages: Sequence[OutboxMessage]
    acks: Sequence[OutboxAcks]
    since: Since
    complete: bool
    relayed_to: int


class Outcome(Enum):
    """The outcome of a relay of rows: none is left; another process has them; they stay, for some while."""

    DONE, LEFT, KEPT = range(3)


async def find_outbox_rows(
    connection: HotConnection, *, since: Since, kept: Collection[str] = (), behind: Collection[str] = ()
) -> Found:
    """Returns the first committed rows of the outbox, except those for the topics and subscriptions `kept` and of
    the projects `behind`.
    """
    asked = {"floor": since.floor, "xids": list(since.xids), "xmax": since.xmax, "kept": list(kept)}
    asked |= {"behind": list(behind), "max_rows": MAX_ROWS, "max_bytes": MAX_BYTES}
    [[(last, relayed_to)], rows] = await connection.run((_READ_OUTBOX_HEAD, {}), (_FIND_OUTBOX_ROWS, asked))
    found = [row for row in rows if row.n is not None]
    complete = len(found) < MAX_ROWS and sum(row.size for row in found) < MAX_BYTES
    messages = [_message(row) for row in found if row.topic_id is not None]
    acks = [_acks(row) for row in found if row.topic_id is None]
    return Found(messages, acks, Since(last, rows[0].now_xids, rows[0].now_xmax), complete, relayed_to or 0)


def _message(row: Any) -> OutboxMessage:
    attributes = {} if row.attributes is None else _decode_attributes(row.attributes)
    message = NewMessage(data=row.data, attributes=attributes, ordering_key=row.ordering_key or "")
    return OutboxMessage(row.n, row.xid, row.role, row.written_at, row.name, row.topic_id, row.size, message)


def _acks(row: Any) -> OutboxAcks:
    return OutboxAcks(
        row.n, row.role, row.written_at, row.name, row.subscription_id, row.size, row.ack_ids, row.nack
    )


async def append_outbox_messages(
    connection: HotConnection, *, topic_id: int, ns: Sequence[int], batches: Batches, now: datetime
) -> Answers | None:
    """Appends the messages with these numbers to the log and deletes them from the outbox: both or neither.

    None: another process is at them, or has done so.  Raises ShardClosed, ShardFrozen, PartitionMissing;
    nothing has changed then.
    """
    try:
        take = {"ns": list(ns), "topic_id": topic_id}
        *_, taken = await connection.run((BEGIN, {}), (_SHORT_WAIT, {}), (_TAKE_OUTBOX_MESSAGES, take))
        if not taken:
            await connection.run(*NOTHING_CHANGED)
            return None
        if len(taken) < len(ns):
            await connection.close()
            return None
        answers = await append_to_shards(connection, batches=batches, now=now)
        await connection.run((COMMIT, {}))
    except BaseException:
        await connection.close()  # its transaction is open
        raise
    return answers


async def take_acks(connection: HotConnection, *, ns: Sequence[int]) -> None:
    """Deletes the rows of acks that have been made, except those that another process is just deleting."""
    await connection.run((_TAKE_OUTBOX_ACKS, {"ns": list(ns)}))


async def refuse_outbox_messages(
    connection: HotConnection, *, ns: Sequence[int], reason: str, now: datetime
) -> int:
    """Put messages that cannot be published aside.  Returns how many were still there."""
    [rows] = await connection.run((_REFUSE_OUTBOX_MESSAGES, {"ns": list(ns), "now": now, "reason": reason}))
    return len(rows)


async def note_outbox_progress(
    connection: HotConnection,
    *,
    awake_until: datetime,
    relayed_to: int,
    behind: Collection[str] = (),
    behind_to: int = 0,
) -> None:
    """Stores the progress for writers of the outbox.

    Until `awake_until` the relay queries by itself, and all rows up to `relayed_to` have been taken; of the
    projects `behind`, all up to `behind_to`.
    """
    note = {"awake_until": awake_until, "relayed_to": relayed_to, "behind": list(behind), "behind_to": behind_to}
    await connection.run((BEGIN, {}), (NO_WAIT, {}), (_NOTE_OUTBOX_PROGRESS, note), (COMMIT, {}))


async def delete_refused_messages(connection: Connection, *, now: datetime) -> int:
    """Delete those that were refused long ago, and the oldest of very many.  Returns how many."""
    bounds = {"before": now - timedelta(days=_REFUSED_DAYS), "most": _MOST_REFUSED}
    return await run_in_batches(connection, _DELETE_REFUSED_MESSAGES, bounds, batch=BATCH)
