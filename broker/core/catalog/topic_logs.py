"""Replaces the logs of a topic, and adds logs to it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.core.catalog.cursor_locks import lock_cursors
from broker.core.catalog.shard_levels import insert_shards, made_shards
from broker.core.log.dead_letter_retention import Lost, delete_dead_letters_of_shards, resolve_in_shards
from broker.db.driver.database import driver_of
from broker.db.schema.tables import (
    cursors,
    delivery_attempts,
    held_claims,
    known_shards,
    shards,
    snapshot_outstanding,
    snapshot_positions,
    snapshots,
    subscriptions,
    topics,
)
from broker.model.due_attempt import first_due_floor
from broker.model.timestamps import whole_milliseconds
from broker.model.topic import Topic

_NOBODY = 0  # the topic of a log that nothing refers to: the janitor deletes it


async def replace_logs(connection: AsyncConnection, *, topic: Topic, now: datetime) -> tuple[Sequence[str], Lost]:
    """Gives a topic new shards, with its subscriptions at their beginnings; the caller has locked its row.

    Returns the names of the subscriptions, and the unresolved dead letters in the old shards.  Waits for claims and
    publishes under way; later ones find the old shards closed, or without a cursor, and read the topic again.
    """
    waiting = await _take_cursors(connection, topic.shard_ids)
    await connection.execute(delete(delivery_attempts).where(delivery_attempts.c.shard_id.in_(topic.shard_ids)))
    await _forget_snapshots(connection, topic.topic_id)
    for shard_id in topic.shard_ids:  # by id: the one lock order
        closed = update(shards).where(shards.c.shard_id == shard_id).values(open=False, topic_id=_NOBODY)
        await connection.execute(closed)
        await connection.execute(delete(known_shards).where(known_shards.c.shard_id == shard_id))
    lost = await delete_dead_letters_of_shards(await driver_of(connection), topic.shard_ids)
    # No message of a key is left that later messages could overtake, so keys may be spread.
    count, known = len(topic.plain_shard_ids), topic.extensions.priorities
    await _keep_keys(connection, topic, None if known is None else count)
    levels = () if known is None else range(known.least)
    await _begin(connection, topic, waiting, now, plain=range(count), levels=levels)
    names = select(subscriptions.c.name).where(subscriptions.c.topic_id == topic.topic_id)
    return (await connection.scalars(names)).all(), lost


async def add_shards(connection: AsyncConnection, *, topic: Topic, count: int, now: datetime) -> Sequence[str]:
    """Give a topic so many more shards, at whose beginnings its subscriptions stand; the caller has locked its row.

    Keys stay in those that it has.  Returns the names of the subscriptions.
    """
    there = len(topic.plain_shard_ids)
    await _keep_keys(connection, topic, topic.key_shards or there)
    waiting = await _hold(connection, topic)
    await _begin(connection, topic, waiting, now, plain=range(there, there + count))
    return await _names(connection, topic)


async def add_levels(
    connection: AsyncConnection, *, topic: Topic, levels: Collection[int], now: datetime
) -> Sequence[str]:
    """Give a topic shards for messages of these levels, if any, as add_shards does."""
    if levels:
        waiting = await _hold(connection, topic)
        await _begin(connection, topic, waiting, now, levels=levels)
    return await _names(connection, topic)


async def _keep_keys(connection: AsyncConnection, topic: Topic, count: int | None) -> None:
    """Keeps ordering keys in the first `count` plain shards; None: in all of them."""
    await connection.execute(update(topics).where(topics.c.topic_id == topic.topic_id).values(key_shards=count))


def _attached(topic: Topic) -> ColumnElement[bool]:
    return (subscriptions.c.topic_id == topic.topic_id) & subscriptions.c.detached.is_(False)


async def _names(connection: AsyncConnection, topic: Topic) -> Sequence[str]:
    names = select(subscriptions.c.name).where(_attached(topic)).order_by(subscriptions.c.subscription_id)
    return (await connection.scalars(names)).all()


async def _hold(connection: AsyncConnection, topic: Topic) -> dict[int, bool]:
    """Returns the subscriptions of a topic, and whether each is paused.

    Locks them, so that none is deleted, detached or paused meanwhile without the new cursors.
    """
    of_topic = select(subscriptions.c.subscription_id).where(_attached(topic))
    held = of_topic.order_by(subscriptions.c.subscription_id).with_for_update(read=True)
    ids = (await connection.scalars(held)).all()
    paused = select(held_claims.c.subscription_id).where(held_claims.c.subscription_id.in_(of_topic))
    waits = set((await connection.scalars(paused)).all())
    return {id_: id_ in waits for id_ in ids}


async def _begin(
    connection: AsyncConnection,
    topic: Topic,
    waiting: Mapping[int, bool],
    now: datetime,
    *,
    plain: Iterable[int] = (),
    levels: Iterable[int] = (),
) -> None:
    """New shards, and these subscriptions at their beginnings.

    What is published there comes after every change of a filter (features/filters/change_rows.py).
    """
    changed = select(func.max(subscriptions.c.filter_changed_at)).where(_attached(topic))
    start = whole_milliseconds(now)
    start = max(start, await connection.scalar(changed) or start)
    made = made_shards(topic.topic_id, plain=plain, levels=levels, now=start, frozen=topic.freeze is not None)
    shard_ids = await insert_shards(connection, made)
    position = {"next_publish_time": start, "next_seq": 1, "due_floor": first_due_floor(now), "first_seq": 1}
    rows = [
        {"shard_id": shard_id, "subscription_id": subscription_id, "paused": paused, **position}
        for subscription_id, paused in waiting.items()
        for shard_id in shard_ids
    ]
    if rows:
        await connection.execute(insert(cursors), rows)


async def _take_cursors(connection: AsyncConnection, shard_ids: Sequence[int]) -> dict[int, bool]:
    """Deletes the cursors of shards.  Returns their subscriptions, and whether each was paused."""
    ids = await _subscriptions_of(connection, shard_ids)
    of_them = cursors.c.shard_id.in_(shard_ids) & cursors.c.subscription_id.in_(ids)
    await lock_cursors(connection, shard_ids=shard_ids, subscription_ids=ids)
    await resolve_in_shards(await driver_of(connection), shard_ids)
    gone = delete(cursors).where(of_them).returning(cursors.c.subscription_id, cursors.c.paused)
    rows = await connection.execute(gone)
    return {row.subscription_id: row.paused for row in rows}


async def _subscriptions_of(connection: AsyncConnection, shard_ids: Sequence[int]) -> Sequence[int]:
    """The key of cursors begins with the subscription."""
    is_it = known_shards.c.topic_id == subscriptions.c.topic_id
    of_topic = select(subscriptions.c.subscription_id).join(known_shards, is_it)
    found = await connection.scalars(of_topic.distinct().where(known_shards.c.shard_id.in_(shard_ids)))
    return found.all()


async def _forget_snapshots(connection: AsyncConnection, topic_id: int) -> None:
    ids = select(snapshots.c.snapshot_id).where(snapshots.c.topic_id == topic_id)
    for table in (snapshot_positions, snapshot_outstanding):
        await connection.execute(delete(table).where(table.c.snapshot_id.in_(ids)))
    await connection.execute(delete(snapshots).where(snapshots.c.topic_id == topic_id))
