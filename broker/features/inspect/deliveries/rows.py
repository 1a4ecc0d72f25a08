"""Reads the stored facts about one message for each subscription (F3)."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from broker.core.backlog.delivery_rows import delivery_row
from broker.core.backlog.delivery_state import DeliveryFacts, DeliveryRow
from broker.core.filtering.body import MAX_BODY_BYTES
from broker.core.filtering.comparing import most_compared
from broker.core.log.logged_message import LoggedMessage
from broker.core.log.message_ids import id_seqs_at
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.features.dead_letters.dead_letter_groups import resolved_of
from broker.features.inspect.deliveries.report import MAX_COUNTED, DeadLetterFact, ReportedDelivery
from broker.model.message_id import message_id
from broker.model.subscription import Subscription

_FIND_GAP = statements.hot("find_gap")
_READ_DELIVERY_FACTS = statements.hot("read_delivery_facts")
_MATCH_MESSAGE = statements.hot("match_message")
_FIND_DEAD_LETTERS = statements.hot("find_dead_letters_of_message")
_COUNT_BEFORE = statements.hot("count_before")


async def find_gap(connection: HotConnection, *, shard_id: int, seq: int) -> tuple[datetime, datetime] | None:
    """Returns the publish times of the messages around one that is missing in the log.

    The later one is that of the last publish if no message follows.  Returns None if the sequence was never
    assigned, or if the log has no message before it.
    """
    [rows] = await connection.run((_FIND_GAP, {"shard_id": shard_id, "seq": seq}))
    return tuple(rows[0]) if rows else None


async def read_deliveries(
    connection: HotConnection, *, message: LoggedMessage, subscriptions: Sequence[Subscription]
) -> list[ReportedDelivery]:
    """Reads the stored facts about a message for each subscription, in their order.  Skips deleted subscriptions.

    `message` has all of its data, unless that is longer than MAX_BODY_BYTES: filters are compared with it.
    """
    ids = {"subscription_ids": [s.subscription_id for s in subscriptions]}
    where = ids | {"shard_id": message.shard_id, "seq": message.seq}
    in_shard = {
        "ordering_key": message.ordering_key or "",
        "ordered": [s.enable_message_ordering for s in subscriptions],
    }
    body = message.data if message.data_size <= MAX_BODY_BYTES else None
    given = {"attributes": message.attributes, "body": body, "publish_time": message.publish_time}
    # Dead letters are read before and after: a message may be dead-lettered or redriven at any moment.
    before, rows, there, behind = await connection.run(
        (_FIND_DEAD_LETTERS, where),
        (_READ_DELIVERY_FACTS, where | in_shard),
        (_MATCH_MESSAGE, ids | given),
        (_FIND_DEAD_LETTERS, where),
    )
    matches = dict(there)
    newest = {row.subscription_id: _dead_letter(row) for row in (*before, *behind)}
    by_id = {row.subscription_id: row for row in rows}
    found = [
        _delivery(by_id[id_], message, s, matches=matches[id_], dead_letter=newest.get(id_))
        for s in subscriptions
        if (id_ := s.subscription_id) in matches
    ]
    return await _with_ids(connection, found)


async def _with_ids(connection: HotConnection, found: list[ReportedDelivery]) -> list[ReportedDelivery]:
    """Replaces the sequences in `blocked_by` by the numbers that message ids contain."""
    sequences = [(each.shard_id, each.blocked_by) for each in found if each.blocked_by is not None]
    if not sequences:
        return found
    names = await id_seqs_at(connection, sequences)
    return [
        each if each.blocked_by is None else replace(each, blocked_by=names[each.shard_id, each.blocked_by])
        for each in found
    ]


async def count_before(connection: HotConnection, delivery: ReportedDelivery, *, now: datetime) -> tuple[int, bool]:
    """Counts the messages that will be delivered before one that is after the cursor.  Returns whether there are
    more.

    Reads at most MAX_COUNTED messages, fewer if the filter reads bodies, and counts those that match the filter.
    """
    subscription = delivery.subscription
    most = most_compared(MAX_COUNTED, subscription.body_path)
    asked = {
        "shard_id": delivery.shard_id,
        "subscription_id": subscription.subscription_id,
        "seq": delivery.facts.seq,
        "publish_time": delivery.facts.publish_time,
        "retained_since": now - subscription.retention,
        "filter_path": subscription.filter_path,
        "body_path": subscription.body_path,
        "now": now,
        "max_scanned": most,
    }
    [rows] = await connection.run((_COUNT_BEFORE, asked))
    return rows[0].matching, rows[0].scanned >= most


def _delivery(
    row: Any,
    message: LoggedMessage,
    subscription: Subscription,
    *,
    matches: bool,
    dead_letter: DeadLetterFact | None,
) -> ReportedDelivery:
    held, ordinal = _held(row.rows, message.seq)
    key_row = None if row.key_row is None else delivery_row(_named(json.loads(row.key_row)))
    blocker = next((each for each in (held, key_row) if each and each.ordering_key is not None), None)
    return ReportedDelivery(
        subscription=subscription,
        shard_id=message.shard_id,
        facts=DeliveryFacts(
            seq=message.seq,
            publish_time=message.publish_time,
            expires_at=message.expires_at,
            next_seq=row.next_seq,
            first_seq=row.first_seq,
            row=held,
            ordinal=ordinal,
            key_row=key_row,
            matches=matches,
        ),
        blocked_by=None if blocker is None else blocker.blocker,
        dead_letter=dead_letter,
        is_ordered=bool(message.ordering_key) and subscription.enable_message_ordering,
    )


def _held(text: str | None, seq: int) -> tuple[DeliveryRow | None, int]:
    """Returns the row in which a message is not settled (None: there is none), and its ordinal."""
    for fields in json.loads(text or "[]"):
        named = _named(fields)
        row = replace(delivery_row(named), delivered_at=named.delivered_at, failure=named.failure)
        for ordinal in row.unsettled:
            if row.seqs[ordinal] == seq:
                return row, ordinal
    return None, 0


def _named(fields: dict[str, Any]) -> Any:
    times = {
        name: fields[name] and datetime.fromisoformat(fields[name])
        for name in ("next_delivery_at", "delivered_at")
        if name in fields
    }
    return SimpleNamespace(**fields | times)


def _dead_letter(row: Any) -> DeadLetterFact:
    return DeadLetterFact(
        message_id=message_id(row.shard_id, row.seq),
        publish_time=row.publish_time,
        reason=row.reason,
        delivery_attempts=row.delivery_attempts,
        resolved=resolved_of(row),
    )
