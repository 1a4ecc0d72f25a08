"""Changes the filter of a subscription.  The earlier filters still decide about earlier messages.

A claim that locks a cursor uses the filter that was stored with the cursor, or finds that it does not know this
filter (docs/decisions/0077).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import select, update

from broker.core.catalog.columns import decode_earlier, encode_earlier
from broker.core.catalog.cursor_locks import lock_cursors_of
from broker.core.catalog.shard_levels import shards_of
from broker.core.filtering.changes import compiled_filter
from broker.core.filtering.comparing import most_compared
from broker.db.driver import statements
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.hot_connection import HotConnection
from broker.db.schema.tables import cursors, shards, subscriptions
from broker.model.filter_changes import EarlierFilter, FilterComparison, change_time
from broker.model.subscription import Subscription

_COMPARE_FILTERS = statements.hot("compare_filters")

_IN_SPAN = b"""
    SELECT publish_time FROM %s
    WHERE shard_id = ANY (%%(shard_ids)s) AND publish_time >= %%(begin)s AND publish_time < %%(until)s
    LIMIT 1
"""
_DEAD_LETTERS_IN_SPAN = b"""
    SELECT source_publish_time FROM dead_letters
    WHERE source_shard_id = ANY (%(shard_ids)s) AND subscription_id = %(subscription_id)s
      AND source_publish_time >= %(begin)s AND source_publish_time < %(until)s
    LIMIT 1
"""
_MESSAGES_OF_A_SPAN = (_IN_SPAN % b"message_batches", _IN_SPAN % b"straggler_batches", _DEAD_LETTERS_IN_SPAN)
_CHANGED = b"SELECT subscription_id FROM subscriptions WHERE earlier_filters IS NOT NULL ORDER BY subscription_id"
_LOCK_CHANGED = b"""
    SELECT filter, earlier_filters, topic_id FROM subscriptions
    WHERE subscription_id = %s AND earlier_filters IS NOT NULL
    FOR UPDATE SKIP LOCKED
"""
_SHARDS_OF_TOPICS = b"SELECT shard_id FROM known_shards WHERE topic_id = ANY (%s)"
_KEEP_FILTERS = b"""
    UPDATE subscriptions
    SET filter_path = %(filter_path)s::jsonpath, body_path = %(body_path)s::jsonpath,
        earlier_filters = %(earlier_filters)s::jsonb
    WHERE subscription_id = %(subscription_id)s
"""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

MAX_COMPARED = 10_000  # messages, in all shards: some 20 ms
Paths = tuple[str | None, str | None]  # of a filter: filter_path, body_path


async def needed_filters(
    connection: Connection, *, subscription_id: int, shard_ids: Sequence[int], earlier: Sequence[EarlierFilter]
) -> tuple[EarlierFilter, ...]:
    """Returns the filters that still decide about a message.

    It is a message in the log, or one that a dead letter may come back as.
    """
    needed, begin = [], _LONG_AGO
    where = {"subscription_id": subscription_id, "shard_ids": list(shard_ids)}
    for each in earlier:
        if await _decides(connection, where | {"begin": begin, "until": each.until}):
            needed.append(each)
        begin = each.until
    return tuple(needed)


async def _decides(connection: Connection, span: Mapping[str, Any]) -> bool:
    for there in _MESSAGES_OF_A_SPAN:
        if await (await connection.execute(there, span)).fetchone() is not None:
            return True
    return False


async def forget_filters(connection: Connection, *, now: datetime) -> None:
    """Drop earlier filters that decide about nothing any more; `now`: as every part of a pass takes it."""
    found = await (await connection.execute(_CHANGED)).fetchall()
    for (subscription_id,) in found:
        async with connection.transaction():
            await _forget_filters(connection, subscription_id)


async def _forget_filters(connection: Connection, subscription_id: int) -> None:
    row = await (await connection.execute(_LOCK_CHANGED, [subscription_id])).fetchone()
    if row is None:
        return
    text, stored, topic_id = row
    known = await connection.execute(_SHARDS_OF_TOPICS, [[topic_id, -subscription_id]])
    shard_ids = [shard_id for (shard_id,) in await known.fetchall()]
    earlier = decode_earlier(stored)
    needed = await needed_filters(connection, subscription_id=subscription_id, shard_ids=shard_ids, earlier=earlier)
    if needed == earlier:
        return
    paths = compiled_filter(text, needed)
    kept = {"subscription_id": subscription_id, **paths._asdict(), "earlier_filters": None}
    if needed:
        kept["earlier_filters"] = Jsonb(encode_earlier(needed))
    await connection.execute(_KEEP_FILTERS, kept)


async def begin_change(connection: ResourceConnection, subscription: Subscription, now: datetime) -> datetime:
    """Returns when the new filter begins to apply: after all present messages, and before all later ones.

    Waits for claims of the subscription and for publishes to its topic that are under way; both wait until the
    transaction ends.  The caller has locked the subscription's row.
    """
    await lock_cursors_of(connection, subscription.subscription_id)
    shard_ids = sorted(await shards_of(connection, [subscription.subscription_id]))  # purges may have made new ones
    times: list[datetime] = []
    for shard_id in shard_ids:  # by id: the one lock order
        locked = select(shards.c.last_publish_time).where(shards.c.shard_id == shard_id).with_for_update()
        times += (await connection.scalars(locked)).all()
    since = change_time(times, now)
    await _publish_no_earlier(connection, shard_ids, since)
    return since


async def _publish_no_earlier(connection: ResourceConnection, shard_ids: Sequence[int], since: datetime) -> None:
    """Makes later publish times no earlier than `since`, whatever the clock of the publishing process."""
    for shard_id in shard_ids:
        moved = update(shards).where(shards.c.shard_id == shard_id).values(last_publish_time=since)
        await connection.execute(moved)


async def write_change(
    connection: ResourceConnection,
    *,
    subscription: Subscription,
    since: datetime,
    newest: Paths,
    now: datetime,
) -> None:
    """Write the filter of `subscription`, of which `newest` is compiled alone, and tell its cursors."""
    is_mixed = bool(subscription.earlier_filters)
    await connection.execute(
        update(subscriptions)
        .where(subscriptions.c.subscription_id == subscription.subscription_id)
        .values(
            filter=subscription.filter,
            filter_path=subscription.filter_path,
            body_path=subscription.body_path,
            earlier_filters=encode_earlier(subscription.earlier_filters),
            filter_changed_at=since,
            newest_filter_path=newest[0] if is_mixed else None,
            newest_body_path=newest[1] if is_mixed else None,
            last_active_at=now,
        )
    )
    of_it = cursors.c.subscription_id == subscription.subscription_id
    await connection.execute(update(cursors).where(of_it).values(filter_changed_at=since))


async def compare_filters(
    connection: HotConnection,
    *,
    shard_ids: Sequence[int],
    before: Paths,
    after: Paths,
    retained_since: datetime,
) -> FilterComparison:
    """Counts how many of the newest messages of some shards each of two filters matches."""
    bodies = before[1] or after[1]
    most = max(most_compared(MAX_COMPARED, bodies) // max(len(shard_ids), 1), 1)
    paths = dict(
        zip(("before_path", "before_body_path", "after_path", "after_body_path"), before + after, strict=True)
    )
    compared = FilterComparison()
    for shard_id in shard_ids:
        where = {"shard_id": shard_id, "retained_since": retained_since, "max_scanned": most}
        [rows] = await connection.run((_COMPARE_FILTERS, where | paths))
        compared += FilterComparison(*rows[0])
    return compared
