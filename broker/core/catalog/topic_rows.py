"""Rows of `topics`, and the shards that a topic owns."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Row, Select, Text, any_, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.core.catalog.columns import read_topic_columns, topic_columns
from broker.core.catalog.listed_names import is_listed
from broker.core.catalog.page_bytes import bytes_of, cut_to_bytes
from broker.core.catalog.shard_levels import insert_shards, made_shards, read_shards, shards_with_levels
from broker.db.driver.database import driver_of
from broker.db.driver.in_doubt import wait_until_heard
from broker.db.schema.tables import (
    known_shards,
    payload_schemas,
    scheduled_messages,
    shards,
    snapshots,
    subscriptions,
    topics,
)
from broker.model.freeze import Freeze
from broker.model.page import Page
from broker.model.schema_settings import DELETED_SCHEMA, SchemaSettings
from broker.model.topic import DELETED_TOPIC, Topic

_SHARDS = shards_with_levels(known_shards.c.topic_id == topics.c.topic_id)
_TOPIC: Select[Any] = select(topics, _SHARDS, payload_schemas.c.name.label("schema")).outerjoin_from(
    topics, payload_schemas, payload_schemas.c.schema_id == topics.c.schema_id
)


def _topic(row: Row[Any]) -> Topic:
    shard_ids, levels = read_shards(row.shards)
    plain = len(shard_ids) - len(levels)
    return Topic(
        topic_id=row.topic_id,
        name=row.name,
        shard_ids=shard_ids,
        key_shards=row.key_shards,
        levels=levels,
        schema_settings=None if row.schema_id is None else _schema_settings(row),
        freeze=None if row.frozen is None else _freeze(row.frozen),
        **read_topic_columns(row, shards=plain if plain > 1 else None),
    )


def _mutable(topic: Topic) -> dict[str, Any]:
    return {**topic_columns(topic), **_schema_columns(topic.schema_settings)}


def _freeze(stored: Mapping[str, str]) -> Freeze:
    return Freeze(stored["reason"], datetime.fromisoformat(stored["since"]), stored["by"])


def _schema_settings(row: Row[Any]) -> SchemaSettings:
    return SchemaSettings(
        schema=row.schema or DELETED_SCHEMA,
        encoding=row.schema_encoding,
        first_revision_id=row.first_revision_id,
        last_revision_id=row.last_revision_id,
        schema_id=row.schema_id,
    )


def _schema_columns(settings: SchemaSettings | None) -> dict[str, Any]:
    return {
        "schema_id": settings and settings.schema_id,
        "schema_encoding": settings and settings.encoding,
        "first_revision_id": settings and settings.first_revision_id,
        "last_revision_id": settings and settings.last_revision_id,
    }


async def insert_topic(
    connection: AsyncConnection, *, topic: Topic, shard_count: int, now: datetime
) -> Topic | None:
    """Create a topic and its shards; None if the name is taken."""
    topic_id = await connection.scalar(
        pg_insert(topics)
        .values(name=topic.name, created_at=now, **_mutable(topic))
        .on_conflict_do_nothing()
        .returning(topics.c.topic_id)
    )
    if topic_id is None:
        return None
    levels = topic.extensions.priorities and range(topic.extensions.priorities.least)
    rows = made_shards(topic_id, plain=range(shard_count), levels=levels or (), now=now)
    await insert_shards(connection, rows)
    return await find_topic(connection, name=topic.name)


async def find_topic(connection: AsyncConnection, *, name: str) -> Topic | None:
    """The topic of this name."""
    row = (await connection.execute(_TOPIC.where(topics.c.name == name))).one_or_none()
    return None if row is None else _topic(row)


async def read_creation_time(connection: AsyncConnection, *, topic_id: int) -> datetime:
    """Returns when a topic was created."""
    created = select(topics.c.created_at).where(topics.c.topic_id == topic_id)
    created_at: datetime = (await connection.execute(created)).scalar_one()
    return created_at


async def read_newest_message(connection: AsyncConnection, *, shard_ids: Sequence[int]) -> datetime | None:
    """Returns when the newest message of some shards was published, or accepted for later; None: none ever was."""
    of_these = shards.c.shard_id.in_(shard_ids)
    published = await connection.scalar(
        select(func.max(shards.c.last_publish_time)).where(of_these, shards.c.head > 0)
    )
    waiting = scheduled_messages.c.shard_id.in_(shard_ids)
    accepted = await connection.scalar(select(func.max(scheduled_messages.c.accepted_at)).where(waiting))
    return max((time for time in (published, accepted) if time is not None), default=None)


async def find_topics(connection: AsyncConnection, *, names: Sequence[str]) -> list[Topic]:
    """The topics of these names, as far as they exist."""
    rows = await connection.execute(_TOPIC.where(topics.c.name == any_(literal(names, ARRAY(Text)))))
    return [_topic(row) for row in rows]


async def lock_topic(connection: AsyncConnection, *, name: str) -> Topic | None:
    """The topic of this name, kept from changing until the transaction ends."""
    if await _lock(connection, name, share=False) is None:
        return None
    return await find_topic(connection, name=name)


async def share_topic(connection: AsyncConnection, *, name: str) -> int | None:
    """The id of the topic of this name, kept from being deleted until the transaction ends."""
    return await _lock(connection, name, share=True)


async def _lock(connection: AsyncConnection, name: str, *, share: bool) -> int | None:
    locked = select(topics.c.topic_id).where(topics.c.name == name).with_for_update(read=share)
    topic_id: int | None = await connection.scalar(locked)
    if topic_id is not None:
        await wait_until_heard(await driver_of(connection))
    return topic_id


async def update_topic(connection: AsyncConnection, *, topic: Topic) -> None:
    """Write a topic's mutable fields."""
    await connection.execute(update(topics).where(topics.c.topic_id == topic.topic_id).values(**_mutable(topic)))


async def freeze_topic(connection: AsyncConnection, *, topic: Topic, freeze: Freeze | None) -> None:
    """Refuse publishes from the commit on, in every process, or (None) no more; waits for those under way."""
    stored = freeze and {"reason": freeze.reason, "since": freeze.since.isoformat(), "by": freeze.by}
    await connection.execute(update(topics).where(topics.c.topic_id == topic.topic_id).values(frozen=stored))
    end = None if freeze is None else shards.c.head
    for shard_id in topic.shard_ids:  # by id: the one lock order
        await connection.execute(update(shards).where(shards.c.shard_id == shard_id).values(frozen_at=end))


async def delete_topic(connection: AsyncConnection, *, topic: Topic) -> Sequence[str]:
    """Delete a topic and close its shards; its subscriptions keep their backlog.  Returns their names."""
    await connection.execute(delete(topics).where(topics.c.topic_id == topic.topic_id))
    orphaned = await connection.scalars(
        update(subscriptions)
        .where(subscriptions.c.topic_id == topic.topic_id)
        .values(topic=DELETED_TOPIC)
        .returning(subscriptions.c.name)
    )
    await connection.execute(
        update(snapshots).where(snapshots.c.topic_id == topic.topic_id).values(topic=DELETED_TOPIC)
    )
    for shard_id in topic.shard_ids:  # last, and by id: the one lock order
        await connection.execute(update(shards).where(shards.c.shard_id == shard_id).values(open=False))
    return orphaned.all()


async def list_topics(connection: AsyncConnection, *, project: str, page: Page) -> list[Topic]:
    """Lists a page of a project's topics, by name, and one topic more."""
    rows = await connection.execute(
        _TOPIC.where(_listed(project, page)).order_by(topics.c.name).limit(page.size + 1)
    )
    return [_topic(row) for row in rows]


async def cut_page_of_topics(connection: AsyncConnection, *, project: str, page: Page) -> Page:
    """A page that is not too large in bytes."""
    sizes = select(bytes_of(topics.c.message_transforms)).where(_listed(project, page)).order_by(topics.c.name)
    return await cut_to_bytes(connection, sizes, page)


def _listed(project: str, page: Page) -> ColumnElement[bool]:
    return is_listed(topics.c.name, project, "topics", page)


async def find_topic_of_shard(connection: AsyncConnection, *, shard_id: int) -> str | None:
    """The name of the topic that has a shard."""
    return (await find_topics_of_shards(connection, shard_ids=[shard_id])).get(shard_id)


async def find_topics_of_shards(connection: AsyncConnection, *, shard_ids: Sequence[int]) -> dict[int, str]:
    """The names of the topics that have these shards, by shard."""
    of_it = known_shards.c.topic_id == topics.c.topic_id
    query = select(known_shards.c.shard_id, topics.c.name).join(topics, of_it)
    found = await connection.execute(query.where(known_shards.c.shard_id.in_(shard_ids)))
    return {row.shard_id: row.name for row in found}


async def list_topic_subscriptions(connection: AsyncConnection, *, topic_id: int, page: Page) -> Sequence[str]:
    """Lists a page of the names of the subscriptions attached to a topic, and one name more."""
    return await _names(connection, subscriptions, topic_id, page, subscriptions.c.detached.is_(False))


async def list_topic_snapshots(connection: AsyncConnection, *, topic_id: int, page: Page) -> Sequence[str]:
    """Lists a page of the names of a topic's snapshots, and one name more."""
    return await _names(connection, snapshots, topic_id, page, literal(True))


async def _names(
    connection: AsyncConnection, table: Any, topic_id: int, page: Page, condition: Any
) -> Sequence[str]:
    query = select(table.c.name).where(table.c.topic_id == topic_id, table.c.name > page.after, condition)
    names = await connection.scalars(query.order_by(table.c.name).limit(page.size + 1))
    return names.all()
