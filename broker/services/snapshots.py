"""Snapshots and seek (A9): the meaning of each call."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from broker.domain.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from broker.domain.field_mask import Update, check_field_mask
from broker.domain.labels import check_labels
from broker.domain.names import check_name, check_project, check_shape, leaf, not_found, project_of, random_name
from broker.domain.page import Page, cut_page
from broker.domain.position import Position
from broker.domain.replay import Replay, ShardReplay, replay
from broker.domain.snapshot import IMMUTABLE_FIELDS, MUTABLE_FIELDS, Snapshot, check_snapshot, first_expire_time
from broker.domain.subscription import Subscription
from broker.domain.timestamps import format_timestamp
from broker.domain.topic import DELETED_TOPIC
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.quotas import Quotas
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.wake_ups import WakeUps
from broker.services.subscriptions import existing_subscription, subscription_not_found
from broker.store.access.policies import forget_policy
from broker.store.driver.database import Database, ResourceConnection
from broker.store.log import cursors
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.cursors import ShardSeek
from broker.store.resources import snapshots


class SnapshotService:
    """The snapshots of Google's Subscriber service, and Seek."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        wake_ups: WakeUps,
        activity: SubscriptionActivity,
        quotas: Quotas,
    ) -> None:
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._wake_ups = wake_ups
        self._activity = activity
        self._quotas = quotas

    async def create_snapshot(self, name: str, subscription_name: str, labels: Mapping[str, str]) -> Snapshot:
        """Hold what is not acked now and all that comes later.  Without a name (gRPC) it is given one.

        Raises InvalidArgument, NotFound (no such subscription), AlreadyExists, FailedPrecondition (it is detached,
        or its oldest message that is not acked is so old that the snapshot would expire within an hour),
        ResourceExhausted (a quota).
        """
        check_shape(subscription_name, "subscriptions")
        if not name:
            name = random_name(beside=subscription_name, collection="snapshots")
        check_name(name, "snapshots")
        check_labels(labels)
        now = self._clock.now()
        async with self._database.transaction() as connection:
            subscription = await self._attached(connection, subscription_name)
            created = await snapshots.insert_snapshot(
                connection,
                name=name,
                labels=labels,
                subscription=subscription,
                retained_since=now - subscription.retention,
                now=now,
            )
            if created is None:
                raise AlreadyExists(f"Snapshot already exists (resource={leaf(name)}).")
            snapshot, oldest = created
            snapshot = replace(snapshot, expire_time=first_expire_time(now, oldest))
            await snapshots.update_snapshot(connection, snapshot=snapshot)
            await self._quotas.check_count(connection, project_of(name), "snapshots")
            await forget_policy(connection, schema=self._database.schema, resource=name)
        self._activity.used(subscription.subscription_id)
        return snapshot

    async def get_snapshot(self, name: str) -> Snapshot:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            return await self._snapshot(connection, name)

    async def list_snapshots(self, project: str, page: Page) -> tuple[Sequence[Snapshot], str]:
        """A page of a project's snapshots by name, and the token of the next page.

        Raises InvalidArgument for a project that cannot be, unless it has snapshots.
        """
        async with self._database.transaction() as connection:
            found = await snapshots.list_snapshots(connection, project=project, page=page, now=self._clock.now())
        if not found:
            check_project(project)
        return cut_page(found, page, lambda snapshot: snapshot.name)

    async def update_snapshot(self, update: Update[Snapshot]) -> Snapshot:
        """Change labels or the expire time.  Raises InvalidArgument, NotFound; nothing is changed then."""
        check_field_mask(update.paths, resource="Snapshot", mutable=MUTABLE_FIELDS, immutable=IMMUTABLE_FIELDS)
        async with self._database.transaction() as connection:
            current = await self._snapshot(connection, update.name, lock=True)
            snapshot = current.updated(update.wanted(current), update.fields)
            check_snapshot(snapshot, self._clock.now())
            await snapshots.update_snapshot(connection, snapshot=snapshot)
        return snapshot

    async def delete_snapshot(self, name: str) -> None:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            snapshot = await self._snapshot(connection, name, lock=True)
            await snapshots.delete_snapshot(connection, snapshot_id=snapshot.snapshot_id)
            await forget_policy(connection, schema=self._database.schema, resource=name)

    async def seek(self, subscription_name: str, *, time: datetime | None, snapshot_name: str) -> Replay:
        """Seek to a time or to a snapshot.  Raises InvalidArgument unless it is exactly one of them; see below."""
        if time is not None and snapshot_name:
            raise InvalidArgument(
                "Both time and snapshot are given in the SeekRequest. Must specify either a time or a snapshot."
            )
        if time is not None:
            return await self.seek_to_time(subscription_name, time)
        if snapshot_name:
            return await self.seek_to_snapshot(subscription_name, snapshot_name)
        raise InvalidArgument(
            "No target was specified in the SeekRequest. Must specify either a time or a snapshot."
        )

    async def seek_to_time(self, subscription_name: str, time: datetime) -> Replay:
        """Ack what was published before `time` and un-ack what was published from then on.

        Acked messages come back as far as retainAckedMessages or the topic's retention reach.  Ack ids from before
        the seek name nothing any more.  Raises NotFound, FailedPrecondition.
        """
        shards: list[ShardReplay] = []
        async with self._database.transaction() as connection:
            subscription = await self._attached(connection, subscription_name)
            replay_since = subscription.replay_since(self._clock.now())
            for seek in self._seeks(subscription):
                found = await cursors.seek_to_time(connection, seek, time=time, replay_since=replay_since)
                if found is None:
                    raise subscription_not_found(subscription_name)
                shards.append(found)
        self._sought(subscription)
        if replay_since is None:
            why = (
                "Acked messages do not come again: neither retainAckedMessages of the subscription nor "
                "messageRetentionDuration of its topic is set."
            )
        else:
            why = f"Acked messages published before {format_timestamp(replay_since)} are not retained."
        return replay(shards, retained_since=replay_since, why=why)

    async def seek_to_snapshot(self, subscription_name: str, snapshot_name: str) -> Replay:
        """Make outstanding exactly what the snapshot holds.

        Raises InvalidArgument, NotFound, FailedPrecondition (the snapshot is of another topic).
        """
        check_shape(snapshot_name, "snapshots")
        shards: list[ShardReplay] = []
        async with self._database.transaction() as connection:
            subscription = await self._attached(connection, subscription_name)
            snapshot = await self._snapshot(connection, snapshot_name, lock=True)
            if snapshot.topic_id != subscription.topic_id or snapshot.topic == DELETED_TOPIC:
                raise FailedPrecondition(
                    f"The subscription's topic {subscription.topic} is different from that of the snapshot "
                    f"{snapshot.topic}; they must match in order for Seek to work. Note that if a topic is deleted "
                    "and then re-created with the same name, it is considered a distinct topic for these purposes."
                )
            for seek in self._seeks(subscription):
                found = await cursors.seek_to_snapshot(connection, seek, snapshot_id=snapshot.snapshot_id)
                if found is None:
                    raise subscription_not_found(subscription_name)
                shards.append(found)
        self._sought(subscription)
        retained_since = self._clock.now() - subscription.retention
        why = (
            f"Messages published before {format_timestamp(retained_since)} are older than the retention of the "
            "subscription and its topic, and do not come."
        )
        return replay(shards, retained_since=retained_since, why=why)

    def _sought(self, subscription: Subscription) -> None:
        self._activity.used(subscription.subscription_id)
        self._wake_ups.redeliverable(subscription.subscription_id)

    async def positions(self, subscription_name: str) -> tuple[Subscription, Sequence[Position], datetime]:
        """Where a subscription stands in each shard of its topic (A12, B3), and when.  Raises NotFound."""
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, subscription_name)
        now = self._clock.now()
        async with self._database.connection() as hot:
            found = await cursors.read_positions(
                hot,
                subscription_id=subscription.subscription_id,
                retained_since=now - subscription.retention,
                filter_path=subscription.filter_path,
                body_path=subscription.body_path,
            )
        return subscription, found, now

    def _seeks(self, subscription: Subscription) -> list[ShardSeek]:
        now = self._clock.now()
        ids = self._attempt_ids.take_parts(len(subscription.shard_ids), now=now)
        return [
            ShardSeek(
                shard_id=shard_id,
                subscription_id=subscription.subscription_id,
                ordered=subscription.enable_message_ordering,
                now=now,
                first_attempt_id=first_attempt_id,
                retained_since=now - subscription.retention,
                filter_path=subscription.filter_path,
                body_path=subscription.body_path,
            )
            for shard_id, first_attempt_id in zip(subscription.shard_ids, ids, strict=True)
        ]

    async def _attached(self, connection: ResourceConnection, name: str) -> Subscription:
        subscription = await existing_subscription(connection, name)
        if subscription.detached:
            raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
        return subscription

    async def _snapshot(self, connection: ResourceConnection, name: str, *, lock: bool = False) -> Snapshot:
        snapshot = await snapshots.find_snapshot(connection, name=name, now=self._clock.now(), lock=lock)
        if snapshot is None:
            raise not_found("Snapshot does not exist", name, "snapshots")
        return snapshot
