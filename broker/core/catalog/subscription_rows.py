"""Rows of `subscriptions`, and the cursors that are created and deleted with them."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Row,
    Select,
    Text,
    and_,
    any_,
    delete,
    exists,
    func,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.core.catalog.columns import read_subscription_columns, subscription_columns
from broker.core.catalog.cursor_locks import lock_cursors_of
from broker.core.catalog.listed_names import is_listed
from broker.core.catalog.page_bytes import bytes_of, cut_to_bytes
from broker.core.catalog.shard_levels import (
    PRIORITIES,
    of_subscription,
    read_priorities,
    read_shards,
    shards_with_levels,
)
from broker.core.log.dead_letter_retention import resolve_in_shards
from broker.db.driver.database import driver_of
from broker.db.driver.in_doubt import wait_until_heard
from broker.db.schema.tables import (
    breaker_changes,
    cursors,
    held_claims,
    push_attempts,
    push_failures,
    push_states,
    shards,
    subscriptions,
    topics,
)
from broker.model.due_attempt import first_due_floor
from broker.model.page import Page
from broker.model.pause import Pause
from broker.model.subscription import Subscription
from broker.model.topic import DELETED_TOPIC

_SHARDS = shards_with_levels(of_subscription())
_dead_letter_topics, _dead_letter_readers = topics.alias(), subscriptions.alias()
_reads_dead_letters = and_(
    _dead_letter_readers.c.topic_id == _dead_letter_topics.c.topic_id, _dead_letter_readers.c.detached.is_(False)
)
_SUBSCRIPTION: Select[Any] = (
    select(
        subscriptions,
        _SHARDS,
        topics.c.message_retention.label("topic_message_retention"),
        topics.c.exact_durations.label("topic_exact_durations"),
        PRIORITIES,
        push_states.c.paused_reason,
        push_states.c.paused_at,
        push_states.c.paused_by,
        select(_dead_letter_topics.c.topic_id)
        .where(_dead_letter_topics.c.name == subscriptions.c.dead_letter_topic)
        .scalar_subquery()
        .label("dead_letter_topic_id"),
        select(~exists(_dead_letter_readers.select().where(_reads_dead_letters)))
        .where(_dead_letter_topics.c.name == subscriptions.c.dead_letter_topic)
        .scalar_subquery()
        .label("dead_letters_unread"),
    )
    .outerjoin(topics, topics.c.topic_id == subscriptions.c.topic_id)
    .outerjoin(push_states, push_states.c.subscription_id == subscriptions.c.subscription_id)
)
# In the words of the index, so that the planner sees that it fits; and like Subscription.is_push.
_IS_PUSH = text("subscriptions.settings -> 'pushConfig' ? 'pushEndpoint' AND NOT subscriptions.detached")


def _subscription(row: Row[Any]) -> Subscription:
    shard_ids, levels = read_shards(row.shards)
    return Subscription(
        subscription_id=row.subscription_id,
        name=row.name,
        topic=row.topic,
        topic_id=row.topic_id,
        shard_ids=shard_ids,
        levels=levels,
        priorities=read_priorities(row.priorities),
        enable_message_ordering=row.enable_message_ordering,
        dead_letter_topic_id=row.dead_letter_topic_id or 0,
        dead_letters_unread=bool(row.dead_letters_unread),
        detached=row.detached,
        pause=Pause(row.paused_reason, row.paused_at, row.paused_by or "") if row.paused_reason else None,
        created_at=row.created_at,
        **read_subscription_columns(row),
    )


async def find_dead_lettering(connection: AsyncConnection, *, topics: Sequence[str]) -> dict[str, list[str]]:
    """Returns the names of the subscriptions that dead-letter to each of the topics, and of their own topics."""
    wanted = select(subscriptions.c.name, subscriptions.c.topic, subscriptions.c.dead_letter_topic).where(
        subscriptions.c.dead_letter_topic.in_(topics), subscriptions.c.detached.is_(False)
    )
    found: dict[str, list[str]] = {topic: [] for topic in topics}
    for row in await connection.execute(wanted.order_by(subscriptions.c.name)):
        found[row.dead_letter_topic] += [name for name in (row.name, row.topic) if name != DELETED_TOPIC]
    return found


async def insert_subscription(
    connection: AsyncConnection, *, subscription: Subscription, topic_id: int, now: datetime
) -> Subscription | None:
    """Create a subscription with a cursor at the head of each shard of its topic; None if the name is taken.

    The caller holds the topic's row: what is sequenced after this commits is delivered, exactly (B6).
    """
    subscription_id = await connection.scalar(
        pg_insert(subscriptions)
        .values(
            name=subscription.name,
            topic=subscription.topic,
            topic_id=topic_id,
            enable_message_ordering=subscription.enable_message_ordering,
            filter=subscription.filter,
            filter_path=subscription.filter_path,
            body_path=subscription.body_path,
            detached=False,
            created_at=now,
            last_active_at=now,
            **subscription_columns(subscription),
        )
        .on_conflict_do_nothing()
        .returning(subscriptions.c.subscription_id)
    )
    if subscription_id is None:
        return None
    await connection.execute(
        pg_insert(cursors).from_select(
            ["shard_id", "subscription_id", "next_publish_time", "next_seq", "due_floor", "first_seq"],
            select(
                shards.c.shard_id,
                literal(subscription_id),
                shards.c.last_publish_time,
                shards.c.head + 1,
                literal(first_due_floor(now)),
                shards.c.head + 1,
            ).where(shards.c.topic_id == topic_id),
        )
    )
    return await find_subscription(connection, name=subscription.name)


async def find_subscription(connection: AsyncConnection, *, name: str) -> Subscription | None:
    """Returns the subscription of this name."""
    row = (await connection.execute(_SUBSCRIPTION.where(subscriptions.c.name == name))).one_or_none()
    return None if row is None else _subscription(row)


async def find_subscriptions(connection: AsyncConnection, *, names: Sequence[str]) -> list[Subscription]:
    """Returns the subscriptions of these names, as far as they exist."""
    wanted = subscriptions.c.name == any_(literal(names, ARRAY(Text)))
    return [_subscription(row) for row in await connection.execute(_SUBSCRIPTION.where(wanted))]


async def read_subscriptions(connection: AsyncConnection, *, subscription_ids: Sequence[int]) -> list[Subscription]:
    """Returns the subscriptions with these ids, as far as they exist."""
    wanted = subscriptions.c.subscription_id == any_(literal(subscription_ids, ARRAY(BigInteger)))
    return [_subscription(row) for row in await connection.execute(_SUBSCRIPTION.where(wanted))]


async def longest_retention(connection: AsyncConnection, *, topic_id: int) -> timedelta | None:
    """Returns the longest retention of the subscriptions attached to a topic; None: there are none."""
    longest: timedelta | None = await connection.scalar(
        select(func.max(subscriptions.c.message_retention)).where(
            subscriptions.c.topic_id == topic_id, subscriptions.c.detached.is_(False)
        )
    )
    return longest


async def lock_subscription(connection: AsyncConnection, *, name: str) -> Subscription | None:
    """Lock the subscription of this name until the transaction ends, and return it."""
    locked = select(subscriptions.c.subscription_id).where(subscriptions.c.name == name).with_for_update()
    if await connection.scalar(locked) is None:
        return None
    await wait_until_heard(await driver_of(connection))
    return await find_subscription(connection, name=name)


async def update_subscription(connection: AsyncConnection, *, subscription: Subscription, now: datetime) -> None:
    """Write a subscription's mutable fields.  A change counts as activity, so the subscription does not expire."""
    await connection.execute(
        update(subscriptions)
        .where(subscriptions.c.subscription_id == subscription.subscription_id)
        .values(last_active_at=now, **subscription_columns(subscription))
    )


async def note_endpoint(connection: AsyncConnection, *, subscription_id: int, now: datetime) -> None:
    """Write that the subscription has another endpoint from now on."""
    await connection.execute(
        update(subscriptions).where(subscriptions.c.subscription_id == subscription_id).values(endpoint_set_at=now)
    )


async def read_endpoint_time(connection: AsyncConnection, *, subscription_id: int) -> datetime:
    """Returns the time since when the subscription has its endpoint: its creation, unless that was changed."""
    known = func.coalesce(subscriptions.c.endpoint_set_at, subscriptions.c.created_at)
    time: datetime = await connection.scalar(
        select(known).where(subscriptions.c.subscription_id == subscription_id)
    )
    return time


PUSH_TABLES = (push_states, push_failures, push_attempts, breaker_changes)  # what is known of its endpoint


async def delete_subscription(connection: AsyncConnection, *, subscription_id: int) -> None:
    """Delete a subscription, its cursors and the state of its pushes; no claim succeeds without a cursor.

    The janitor deletes its delivery attempts, so that this is quick whatever the size of the backlog.
    """
    await _lock_and_resolve(connection, subscription_id)
    for table in (subscriptions, cursors, *PUSH_TABLES, held_claims):
        await connection.execute(delete(table).where(table.c.subscription_id == subscription_id))


async def detach_subscription(connection: AsyncConnection, *, subscription_id: int, now: datetime) -> None:
    """Mark a subscription detached and drop its backlog: the cursors go, the janitor clears the attempts."""
    await connection.execute(
        update(subscriptions)
        .where(subscriptions.c.subscription_id == subscription_id)
        .values(detached=True, last_active_at=now)
    )
    await _lock_and_resolve(connection, subscription_id)
    for table in (cursors, held_claims):
        await connection.execute(delete(table).where(table.c.subscription_id == subscription_id))


async def _lock_and_resolve(connection: AsyncConnection, subscription_id: int) -> None:
    """Resolve the dead letters that the subscription has read, which only its cursors show: before those go."""
    await lock_cursors_of(connection, subscription_id)
    shard_ids = await connection.scalars(
        select(cursors.c.shard_id).where(cursors.c.subscription_id == subscription_id)
    )
    await resolve_in_shards(await driver_of(connection), shard_ids.all())


async def list_subscriptions(connection: AsyncConnection, *, project: str, page: Page) -> list[Subscription]:
    """Lists a page of a project's subscriptions, by name, and one subscription more."""
    query = _SUBSCRIPTION.where(_listed(project, page)).order_by(subscriptions.c.name)
    rows = await connection.execute(query.limit(page.size + 1))
    return [_subscription(row) for row in rows]


async def cut_page_of_subscriptions(connection: AsyncConnection, *, project: str, page: Page) -> Page:
    """A page that is not too large in bytes."""
    sizes = select(bytes_of(subscriptions.c.message_transforms)).where(_listed(project, page))
    return await cut_to_bytes(connection, sizes.order_by(subscriptions.c.name), page)


def _listed(project: str, page: Page) -> ColumnElement[bool]:
    return is_listed(subscriptions.c.name, project, "subscriptions", page)


async def list_push_subscriptions(connection: AsyncConnection, *, after: int, limit: int) -> list[Subscription]:
    """Lists up to `limit` push subscriptions with ids greater than `after`, by id, the paused ones included."""
    query = _SUBSCRIPTION.where(_IS_PUSH, subscriptions.c.subscription_id > after)
    rows = await connection.execute(query.order_by(subscriptions.c.subscription_id).limit(limit))
    return [_subscription(row) for row in rows]


async def list_alerting_subscriptions(
    connection: AsyncConnection, *, projects: Collection[str]
) -> list[Subscription]:
    """Returns the subscriptions of these projects that have alerts for their lag."""
    project = func.concat("projects/", func.split_part(subscriptions.c.name, "/", 2))
    query = _SUBSCRIPTION.where(subscriptions.c.settings["extensions"].has_key("alerts"), project.in_(projects))
    rows = await connection.execute(query.order_by(subscriptions.c.subscription_id))
    return [_subscription(row) for row in rows]


async def list_all_subscriptions(connection: AsyncConnection, *, after: int, limit: int) -> list[Subscription]:
    """Returns up to `limit` subscriptions with ids greater than `after`, by id."""
    query = _SUBSCRIPTION.where(subscriptions.c.subscription_id > after)
    rows = await connection.execute(query.order_by(subscriptions.c.subscription_id).limit(limit))
    return [_subscription(row) for row in rows]
