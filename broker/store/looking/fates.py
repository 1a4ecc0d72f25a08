"""What is kept of one message, and of it for each subscription (F3)."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

from broker.domain.comparing import most_compared
from broker.domain.delivery_state import DeliveryFacts, DeliveryRow
from broker.domain.fate import MAX_COUNTED, DeadLetterFact, Facts
from broker.domain.message_id import message_id
from broker.domain.standing_page import StandingMessage
from broker.domain.subscription import Subscription
from broker.filtering.body import MAX_BODY_BYTES
from broker.store.driver import statements
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.chosen_letters import resolved_of
from broker.store.log.delivery_rows import delivery_row
from broker.store.log.scheduled_messages import id_seqs_at, sequence_of
from broker.store.looking.standing_messages import standing_message

_FIND_MESSAGE = statements.hot("find_message")
_FIND_GAP = statements.hot("find_gap")
_READ_FATES = statements.hot("read_fates")
_MATCH_MESSAGE = statements.hot("match_message")
_FIND_LETTERS = statements.hot("find_letters_of_message")
_COUNT_BEFORE = statements.hot("count_before")


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


async def find_gap(connection: HotConnection, *, shard_id: int, seq: int) -> tuple[datetime, datetime] | None:
    """When a message was published that the log does not have between others that it has; None: that is not so."""
    [rows] = await connection.run((_FIND_GAP, {"shard_id": shard_id, "seq": seq}))
    return tuple(rows[0]) if rows else None


async def read_facts(
    connection: HotConnection, *, message: LoggedMessage, subscriptions: Sequence[Subscription], now: datetime
) -> list[Facts]:
    """In the order of the subscriptions, without those that are gone."""
    ids = {"subscription_ids": [s.subscription_id for s in subscriptions]}
    where = ids | {"shard_id": message.shard_id, "seq": message.seq}
    in_shard = {
        "ordering_key": message.ordering_key or "",
        "ordered": [s.enable_message_ordering for s in subscriptions],
    }
    body = message.data if len(message.data) <= MAX_BODY_BYTES else None
    given = {"attributes": message.attributes, "body": body, "publish_time": message.publish_time}
    # Letters before and behind: a message becomes one, and comes back, at any moment.
    before, rows, there, behind = await connection.run(
        (_FIND_LETTERS, where),
        (_READ_FATES, where | in_shard),
        (_MATCH_MESSAGE, ids | given),
        (_FIND_LETTERS, where),
    )
    matches = dict(there)
    newest = {row.subscription_id: _dead_letter(row) for row in (*before, *behind)}
    by_id = {row.subscription_id: row for row in rows}
    found = [
        _facts(by_id[id_], message, s, now, matches=matches[id_], dead_letter=newest.get(id_))
        for s in subscriptions
        if (id_ := s.subscription_id) in matches
    ]
    return await _with_ids(connection, found)


async def _with_ids(connection: HotConnection, found: list[Facts]) -> list[Facts]:
    """Messages that block others are stored by their sequences, and reported by their ids."""
    sequences = [(facts.shard_id, facts.blocked_by) for facts in found if facts.blocked_by is not None]
    if not sequences:
        return found
    names = await id_seqs_at(connection, sequences)
    return [
        facts if facts.blocked_by is None else replace(facts, blocked_by=names[facts.shard_id, facts.blocked_by])
        for facts in found
    ]


async def count_before(connection: HotConnection, facts: Facts, *, now: datetime) -> tuple[int, bool]:
    """How many messages are handed out before one that waits behind the cursor; True: there are more.

    Of at most MAX_COUNTED messages, fewer where bodies are read, those that the filter matches.
    """
    subscription = facts.subscription
    most = most_compared(MAX_COUNTED, subscription.body_path)
    asked = {
        "shard_id": facts.shard_id,
        "subscription_id": subscription.subscription_id,
        "seq": facts.seq,
        "publish_time": facts.publish_time,
        "retained_since": now - subscription.retention,
        "filter_path": subscription.filter_path,
        "body_path": subscription.body_path,
        "now": now,
        "max_scanned": most,
    }
    [rows] = await connection.run((_COUNT_BEFORE, asked))
    return rows[0].matching, rows[0].scanned >= most


def _facts(
    row: Any,
    message: LoggedMessage,
    subscription: Subscription,
    now: datetime,
    *,
    matches: bool,
    dead_letter: DeadLetterFact | None,
) -> Facts:
    held = _held(row.rows, message.seq)
    key_row = None if row.key_row is None else delivery_row(_named(json.loads(row.key_row)))
    blocker = next(
        (each for each in (held and held.parsed, key_row) if each and each.ordering_key is not None), None
    )
    return Facts(
        subscription=subscription,
        shard_id=message.shard_id,
        delivery=DeliveryFacts(
            seq=message.seq,
            publish_time=message.publish_time,
            expires_at=message.expires_at,
            next_seq=row.next_seq,
            first_seq=row.first_seq,
            row=None if held is None else held.parsed,
            ordinal=0 if held is None else held.ordinal,
            key_row=key_row,
            matches=matches,
        ),
        standing=None if held is None else _standing(held, message, now),
        blocked_by=None if blocker is None else blocker.blocker,
        dead_letter=dead_letter,
        is_ordered=bool(message.ordering_key) and subscription.enable_message_ordering,
    )


class _Held(NamedTuple):
    row: Any
    parsed: DeliveryRow
    ordinal: int


def _held(text: str | None, seq: int) -> _Held | None:
    """The row in which a message is not settled, and its ordinal."""
    for fields in json.loads(text or "[]"):
        row = _named(fields)
        parsed = delivery_row(row)
        for ordinal in parsed.unsettled:
            if parsed.seqs[ordinal] == seq:
                return _Held(row, parsed, ordinal)
    return None


def _named(fields: dict[str, Any]) -> Any:
    times = {
        name: fields[name] and datetime.fromisoformat(fields[name])
        for name in ("next_delivery_at", "delivered_at")
        if name in fields
    }
    return SimpleNamespace(**fields | times)


def _standing(held: _Held, message: LoggedMessage, now: datetime) -> StandingMessage:
    standing = standing_message(held.row, held.parsed, held.ordinal, message.shard_id, now)
    return replace(standing, failure=held.row.failure, redriven=held.row.redriven)


def _dead_letter(row: Any) -> DeadLetterFact:
    return DeadLetterFact(
        message_id=message_id(row.shard_id, row.seq),
        publish_time=row.publish_time,
        reason=row.reason,
        delivery_attempts=row.delivery_attempts,
        resolved=resolved_of(row),
    )
