"""Implements the calls about snapshots (A9)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from broker.access.policies.policy_rows import forget_policy
from broker.core.backlog.seeking import cursors
from broker.core.backlog.seeking import snapshot_rows as snapshots
from broker.core.backlog.seeking.position import Position
from broker.core.backlog.seeking.snapshot import (
    IMMUTABLE_FIELDS,
    MUTABLE_FIELDS,
    Snapshot,
    check_snapshot,
    first_expire_time,
)
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.resources.subscription_service import attached_subscription, existing_subscription
from broker.db.driver.database import ResourceConnection
from broker.model.errors import AlreadyExists
from broker.model.field_mask import Update, check_field_mask
from broker.model.names import check_name, check_project, check_shape, leaf, not_found, project_of, random_name
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references
from broker.model.resource_limits import check_labels
from broker.model.subscription import Subscription


class SnapshotService:
    """The snapshots of Google's Subscriber service."""

    def __init__(self, core: Core, activity: SubscriptionActivity) -> None:
        self._database = core.database
        self._clock = core.clock
        self._activity = activity
        self._admission = core.admission

    async def create_snapshot(self, name: str, subscription_name: str, labels: Mapping[str, str]) -> Snapshot:
        """Hold what is not acked now and all that comes later.  Without a name (gRPC) it is given one.

        Raises InvalidArgument, NotFound (no such subscription), AlreadyExists, FailedPrecondition (it is detached,
        or its oldest message that is not acked is so old that the snapshot would expire within an hour),
        ResourceExhausted (a quota).
        """
        check_shape(subscription_name, "subscriptions")
        if not name:
            name = random_name(sibling=subscription_name, collection="snapshots")
        check_name(name, "snapshots")
        check_labels(labels)
        now = self._clock.now()
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, subscription_name)
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
            await self._admission.check_count(connection, project_of(name), "snapshots")
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
        return cut_page(found, page.size, lambda snapshot: snapshot.name)

    async def update_snapshot(self, update: Update[Snapshot]) -> Snapshot:
        """Change labels or the expire time.  Raises InvalidArgument, NotFound; nothing is changed then."""
        if not update.paths:
            await self.get_snapshot(update.name)  # raises NotFound before other errors, as Google does
        check_field_mask(update.paths, resource="Snapshot", mutable=MUTABLE_FIELDS, immutable=IMMUTABLE_FIELDS)
        async with self._database.transaction() as connection:
            current = await self._snapshot(connection, update.name, lock=True)
            snapshot = current.updated(update.wanted(current), update.fields)
            check_snapshot(snapshot, self._clock.now())
            await snapshots.update_snapshot(connection, snapshot=snapshot)
        return snapshot

    async def delete_snapshot(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Returns what would be lost if that is all that was asked for.  Raises NotFound, Aborted."""
        async with self._database.transaction() as connection:
            snapshot = await self._snapshot(connection, name, lock=True)
            assert snapshot.created_at is not None
            safeguards.check_existed(snapshot.created_at, name)
            if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                return preview
            await snapshots.delete_snapshot(connection, snapshot_id=snapshot.snapshot_id)
            await forget_policy(connection, schema=self._database.schema, resource=name)
        return None

    async def positions(self, subscription_name: str) -> tuple[Subscription, Sequence[Position], datetime]:
        """Returns the position of a subscription in each shard of its topic (A12, B3), and when it was read.

        Raises NotFound.
        """
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

    async def _snapshot(self, connection: ResourceConnection, name: str, *, lock: bool = False) -> Snapshot:
        return await existing_snapshot(connection, name, now=self._clock.now(), lock=lock)


async def existing_snapshot(
    connection: ResourceConnection, name: str, *, now: datetime, lock: bool = False
) -> Snapshot:
    """The snapshot of this name; with `lock` it stays until the transaction ends.  Raises NotFound."""
    snapshot = await snapshots.find_snapshot(connection, name=name, now=now, lock=lock)
    if snapshot is None:
        raise not_found("Snapshot does not exist", name, "snapshots")
    return snapshot
