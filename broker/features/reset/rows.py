"""Statements that delete all resources of a project at once (G2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, ColumnElement, Table, and_, delete, func, select, update

from broker.core.catalog.cursor_locks import lock_cursors_of
from broker.core.catalog.subscription_rows import PUSH_TABLES
from broker.core.catalog.topic_rows import read_newest_message
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import (
    cursors,
    event_conditions,
    held_claims,
    history_series,
    known_shards,
    operations,
    payload_schema_revisions,
    payload_schemas,
    project_events,
    schedule_ticks,
    schedules,
    shards,
    shared_settings,
    snapshot_outstanding,
    snapshot_positions,
    snapshots,
    subscriptions,
    topics,
    waiting_events,
)
from broker.model.topic import DELETED_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """The names of the deleted resources.

    `touched`: the names of resources of other projects that used any of them.
    """

    topics: Sequence[str]
    subscriptions: Sequence[str]
    snapshots: Sequence[str]
    schemas: Sequence[str]
    operations: Sequence[str]
    schedules: Sequence[str]
    touched: Sequence[str]

    @property
    def counts(self) -> dict[str, int]:
        """The number of deleted resources of each kind."""
        kinds = ("topics", "subscriptions", "snapshots", "schemas", "operations", "schedules")
        return {kind: len(getattr(self, kind)) for kind in kinds}

    @property
    def deleted(self) -> list[str]:
        """The names of all deleted resources."""
        return [
            *(*self.topics, *self.subscriptions, *self.snapshots),
            *(*self.schemas, *self.operations, *self.schedules),
        ]


async def empty_project(connection: ResourceConnection, *, project: str) -> Emptied:
    """Deletes the topics, subscriptions, snapshots, schemas, operations, schedules, events and history of a
    project.

    The caller deletes the policies.  As with single deletions the janitor deletes the messages and delivery
    attempts, so the cost depends only on the number of resources.  Locks rows in the one lock order: schedules,
    topics, subscriptions, cursors, snapshots, shards.
    """
    ticking = await _delete_schedules(connection, project)
    topic_ids = await _locked(connection, topics, "topic_id", project)
    subscription_ids = await _locked(connection, subscriptions, "subscription_id", project)
    orphaned = await _orphan(connection, list(topic_ids), project)
    await _delete_subscriptions(connection, list(subscription_ids))
    snapshot_ids = await _locked(connection, snapshots, "snapshot_id", project)
    for table in (snapshots, snapshot_positions, snapshot_outstanding):
        await connection.execute(delete(table).where(table.c.snapshot_id.in_(snapshot_ids)))
    await _delete_topics(connection, list(topic_ids))
    schema_ids = await _locked(connection, payload_schemas, "schema_id", project)
    for table in (payload_schemas, payload_schema_revisions):
        await connection.execute(delete(table).where(table.c.schema_id.in_(schema_ids)))
    users = await connection.scalars(select(topics.c.name).where(topics.c.schema_id.in_(schema_ids)))
    ended = await connection.scalars(
        delete(operations).where(_is_of(operations, project)).returning(operations.c.name)
    )
    for table in (event_conditions, waiting_events, project_events):
        await connection.execute(delete(table).where(table.c.project == project))
    resource = history_series.c.resource  # points without a series are read by nobody, and go when they are old
    await connection.execute(delete(history_series).where((resource == project) | _is_below(resource, project)))
    await connection.execute(delete(shared_settings).where(_is_below(shared_settings.c.name, project)))
    return Emptied(
        topics=list(topic_ids.values()),
        subscriptions=list(subscription_ids.values()),
        snapshots=list(snapshot_ids.values()),
        schemas=list(schema_ids.values()),
        operations=ended.all(),
        schedules=ticking,
        touched=[*orphaned, *users.all()],
    )


async def read_newest_resource(connection: ResourceConnection, *, project: str) -> datetime | None:
    """Returns when the newest resource of a project was created, or its newest message published (None: it has
    neither).
    """
    created = [
        select(func.max(table.c.created_at)).where(_is_of(table, project)).scalar_subquery()
        for table in (topics, subscriptions, snapshots, operations, schedules)
    ]
    revised = select(func.max(payload_schema_revisions.c.created_at)).join(
        payload_schemas, payload_schemas.c.schema_id == payload_schema_revisions.c.schema_id
    )
    revision = revised.where(_is_of(payload_schemas, project)).scalar_subquery()
    resource = await connection.scalar(select(func.greatest(*created, revision)))
    of_topics = select(known_shards.c.shard_id).join(topics, topics.c.topic_id == known_shards.c.topic_id)
    shard_ids = (await connection.scalars(of_topics.where(_is_of(topics, project)))).all()
    message = await read_newest_message(connection, shard_ids=shard_ids)
    return max((time for time in (resource, message) if time is not None), default=None)


def _is_of(table: Table, project: str) -> ColumnElement[bool]:
    """Returns the condition that a row belongs to a resource of the project."""
    kind = "schemas" if table is payload_schemas else table.name
    return _is_below(table.c.name, f"{project}/{kind}")


def _is_below(name: Column[str], path: str) -> ColumnElement[bool]:
    """Returns the condition that a name begins with a path and a slash, as a range; the 0 comes after the slash."""
    return and_(name > f"{path}/", name < f"{path}0")


async def _locked(connection: ResourceConnection, table: Table, key: str, project: str) -> dict[int, str]:
    """Locks the project's rows of a table until the transaction ends.  Returns their names by key."""
    query = select(table.c[key], table.c.name).where(_is_of(table, project)).order_by(table.c[key])
    return {row[0]: row[1] for row in await connection.execute(query.with_for_update())}


async def _delete_schedules(connection: ResourceConnection, project: str) -> Sequence[str]:
    """Deletes the schedules of a project, before anything else: a tick locks the row of its schedule before a
    shard.

    Returns their names.
    """
    deleted = delete(schedules).where(_is_of(schedules, project)).returning(schedules.c.name)
    names = (await connection.scalars(deleted)).all()
    await connection.execute(
        delete(schedule_ticks).where(_is_below(schedule_ticks.c.schedule, f"{project}/schedules"))
    )
    return names


async def _delete_subscriptions(connection: ResourceConnection, subscription_ids: Sequence[int]) -> None:
    await lock_cursors_of(connection, *subscription_ids)
    for table in (subscriptions, cursors, *PUSH_TABLES, held_claims):
        await connection.execute(delete(table).where(table.c.subscription_id.in_(subscription_ids)))


async def _orphan(connection: ResourceConnection, topic_ids: Sequence[int], project: str) -> Sequence[str]:
    """Sets the topic of the subscriptions of other projects to DELETED_TOPIC.  Returns their names."""
    theirs = subscriptions.c.topic_id.in_(topic_ids) & ~_is_of(subscriptions, project)
    orphaned = update(subscriptions).where(theirs).values(topic=DELETED_TOPIC)
    return (await connection.scalars(orphaned.returning(subscriptions.c.name))).all()


async def _delete_topics(connection: ResourceConnection, topic_ids: Sequence[int]) -> None:
    of_these = snapshots.c.topic_id.in_(topic_ids)
    await connection.execute(update(snapshots).where(of_these).values(topic=DELETED_TOPIC))
    closed = select(known_shards.c.shard_id).where(known_shards.c.topic_id.in_(topic_ids))
    for shard_id in sorted((await connection.scalars(closed)).all()):
        await connection.execute(update(shards).where(shards.c.shard_id == shard_id).values(open=False))
    await connection.execute(delete(topics).where(topics.c.topic_id.in_(topic_ids)))
