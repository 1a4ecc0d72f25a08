"""Seeks to a time or a snapshot, undoes seeks, and purges, which is a seek past all messages (A9, G2)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import ParamSpec, TypeVar

from broker.access.policies.policy_rows import forget_policy
from broker.core.backlog.seeking import cursors
from broker.core.backlog.seeking import snapshot_rows as snapshots
from broker.core.backlog.seeking.cursors import ShardSeek
from broker.core.backlog.seeking.preview import Preview as SeekPreview
from broker.core.backlog.seeking.preview import in_all
from broker.core.backlog.seeking.previews import (
    FOR_COUNTS,
    FOR_LIMITS,
    FOR_PREVIEWS,
    Effort,
    Holding,
    compare,
    read_holding,
)
from broker.core.backlog.seeking.replay import Replay, ShardReplay, Undo, replay
from broker.core.backlog.seeking.snapshot import UNDO_FOR, Snapshot
from broker.core.backlog.seeking.snapshot_service import existing_snapshot
from broker.core.catalog.cursor_locks import lock_cursors_of
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.resources.subscription_service import attached_subscription
from broker.db.driver.database import ResourceConnection
from broker.model.errors import Aborted, FailedPrecondition, InvalidArgument
from broker.model.journal import Author
from broker.model.names import check_shape, leaf, project_of, random_name
from broker.model.preview import UNGUARDED, Preview, Safeguards
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp
from broker.model.topic import DELETED_TOPIC
from broker.observability.metrics.families import PURGES

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 5
_UNDO_LABEL = "broker-undo-of"  # the label of an undo snapshot with the id of its subscription
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a seek: a time, or a snapshot (the other is None, or empty)."""

    time: datetime | None = None
    snapshot: str = ""

    def check(self) -> None:
        """Raises InvalidArgument unless it is exactly one of them."""
        if self.time is not None and self.snapshot:
            raise InvalidArgument(
                "Both time and snapshot are given in the SeekRequest. Must specify either a time or a snapshot."
            )
        if self.time is None and not self.snapshot:
            raise InvalidArgument(
                "No target was specified in the SeekRequest. Must specify either a time or a snapshot."
            )


class _Undone(Exception):
    """A transaction is to leave nothing behind."""


class _OtherLogs(Exception):
    """The subscription does not stand where it did: its topic was purged meanwhile, or it is gone."""


def _again(call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Repeats a call whose subscription has moved to other shards.

    The repeated call reads anew whether the subscription exists.  Raises Aborted after _TRIES.
    """

    @wraps(call)
    async def run(*arguments: P.args, **named: P.kwargs) -> T:
        for _ in range(_TRIES):
            with suppress(_OtherLogs):
                return await call(*arguments, **named)
        raise Aborted("The subscription's topic is purged again and again; nothing was sought.")

    return run


class SeekService:
    """Subscriber.Seek, and what this broker has beside it."""

    def __init__(self, core: Core, activity: SubscriptionActivity) -> None:
        self._database = core.database
        self._clock = core.clock
        self._attempt_ids = core.attempt_ids
        self._wake_ups = core.wake_ups
        self._activity = activity
        self._admission = core.admission
        self._counts = core.counters.process

    @_again
    async def seek(
        self,
        subscription_name: str,
        target: Target,
        *,
        undoable: bool = False,
        by: str = "",
        safeguards: Safeguards = UNGUARDED,
    ) -> Replay:
        """Seeks to a time or a snapshot.

        To a time: acks messages published before it and un-acks those published from then on; acked messages are
        delivered again as far as retainAckedMessages or the topic's retention reach.  To a snapshot: makes
        outstanding exactly what that holds.  Ack ids from before the seek are invalid afterwards.  `undoable`: for
        UNDO_FOR `undo` returns to the position before.  Raises InvalidArgument, NotFound, FailedPrecondition
        (detached; a snapshot of another topic), ResourceExhausted (a quota), Aborted; and Undone (with what it
        would do, if `safeguards` ask for a preview).
        """
        target.check()
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, subscription_name)
            undo = await self._keep(connection, subscription) if undoable else None
            async with self._settled(connection, subscription, safeguards, time=target.time):
                sought = await self._seek(connection, subscription, target, by=by)
        self._sought(subscription)
        return replace(sought, undo=undo)

    @_again
    async def preview(self, subscription_name: str, target: Target | None) -> SeekPreview:
        """Returns what a seek, or `undo` (no target), would change just now: one is made, and rolled back before
        anybody sees it.

        As a seek, it waits for claims under way, and they for it.  Raises as `seek` and `undo`.
        """
        if target is not None:
            target.check()
        with suppress(_Undone):
            async with self._database.transaction() as connection:
                subscription = await attached_subscription(connection, subscription_name)
                to = target or Target(snapshot=(await self._kept(connection, subscription)).name)
                shards, before = await self._hold(connection, subscription)
                await self._seek(connection, subscription, to)
                preview = await _compared(connection, shards, before, time=to.time)
                raise _Undone
        return preview

    async def _hold(
        self, connection: ResourceConnection, subscription: Subscription
    ) -> tuple[Sequence[ShardSeek], Sequence[Holding | None]]:
        """Reads the messages that a subscription has in each shard; nobody else changes them until the transaction
        ends.
        """
        shards = self._seeks(subscription)
        return shards, [await read_holding(connection, shard) for shard in shards]

    @asynccontextmanager
    async def _settled(
        self,
        connection: ResourceConnection,
        subscription: Subscription,
        safeguards: Safeguards,
        *,
        time: datetime | None,
        is_purge: bool = False,
    ) -> AsyncIterator[None]:
        """Decides about what the block changes of a subscription, by comparing what it has before and after.

        Raises Aborted, FailedPrecondition, Undone.
        """
        if not safeguards.asked:
            yield
            return
        assert subscription.created_at is not None
        safeguards.check_existed(subscription.created_at, subscription.name)
        shards, before = await self._hold(connection, subscription)
        yield
        effort = FOR_LIMITS if safeguards.is_limited else FOR_COUNTS
        changed = await _compared(connection, shards, before, time=time, effort=effort)
        safeguards.check_newest(changed.newest, f"A message came to {subscription.name}")
        if is_purge:
            losses = {"messages": changed.skipped.messages, "bytes": changed.skipped.size}
        else:
            losses = {
                "skippedMessages": changed.skipped.messages,
                "skippedBytes": changed.skipped.size,
                "replayedMessages": changed.again.messages,
                "replayedBytes": changed.again.size,
                "notRetainedMessages": changed.not_retained,
            }
        safeguards.settle(
            Preview(
                count=changed.skipped.messages if is_purge else changed.count,
                unit="message",
                time=self._clock.now(),
                losses=losses,
                is_estimated=changed.is_estimated,
            )
        )

    @_again
    async def undo(self, subscription_name: str, *, by: str = "") -> Replay:
        """Returns to the position before the last undoable seek that was not undone.

        Messages that were not acked then are not acked again.  Raises NotFound, FailedPrecondition (detached; there
        is no such seek within the last hour).
        """
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, subscription_name)
            await lock_cursors_of(connection, subscription.subscription_id)  # a concurrent undo waits
            kept = await self._kept(connection, subscription)
            sought = await self._seek(connection, subscription, Target(snapshot=kept.name), by=by)
            await snapshots.delete_snapshot(connection, snapshot_id=kept.snapshot_id)
        self._sought(subscription)
        return sought

    @_again
    async def purge(
        self,
        subscription_name: str,
        *,
        before: datetime | None,
        undoable: bool = False,
        by: str = "",
        safeguards: Safeguards = UNGUARDED,
    ) -> Replay:
        """Acks all messages, or those published `before`; none is delivered again.

        It costs the same however large the backlog is, unless `safeguards` have it counted.  Raises as `seek` does.
        """
        shards: list[ShardReplay] = []
        time = min(before or _END_OF_TIME, safeguards.before or _END_OF_TIME)
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, subscription_name)
            undo = await self._keep(connection, subscription) if undoable else None
            async with self._settled(connection, subscription, safeguards, time=None, is_purge=True):
                for seek in self._seeks(subscription, by=by):
                    found = await cursors.seek_to_time(
                        connection, replace(seek, is_purge=True), time=time, replay_since=None
                    )
                    if found is None:
                        raise _OtherLogs
                    shards.append(found)
        self._sought(subscription)
        self._counts[PURGES["subscription"]] += 1
        return replace(replay(shards, retained_since=None, why=""), undo=undo)

    async def _kept(self, connection: ResourceConnection, subscription: Subscription) -> Snapshot:
        """Returns what the last undoable seek that was not undone has kept.  Raises FailedPrecondition."""
        kept = await snapshots.find_labelled(
            connection,
            topic_id=subscription.topic_id,
            label=(_UNDO_LABEL, str(subscription.subscription_id)),
            now=self._clock.now(),
        )
        if kept is None:
            raise FailedPrecondition(
                "There is no seek to undo: none was undoable within the last hour, or it was undone "
                f"(resource={leaf(subscription.name)})."
            )
        return kept

    async def _keep(self, connection: ResourceConnection, subscription: Subscription) -> Undo:
        """Makes a snapshot of the position.  Locks the cursors first, so that the seek starts at that position."""
        now = self._clock.now()
        name = random_name(sibling=subscription.name, collection="snapshots")
        for seek in self._seeks(subscription):
            await cursors.lock(connection, seek)
        created = await snapshots.insert_snapshot(
            connection,
            name=name,
            labels={_UNDO_LABEL: str(subscription.subscription_id)},
            subscription=subscription,
            retained_since=now - subscription.retention,
            now=now,
        )
        assert created is not None  # the name is unique
        until = now + UNDO_FOR
        await snapshots.update_snapshot(connection, snapshot=replace(created[0], expire_time=until))
        await self._admission.check_count(connection, project_of(name), "snapshots")
        await forget_policy(connection, schema=self._database.schema, resource=name)
        return Undo(name, until)

    async def _seek(
        self, connection: ResourceConnection, subscription: Subscription, target: Target, *, by: str = ""
    ) -> Replay:
        if target.time is not None:
            return await self._to_time(connection, subscription, target.time, by=by)
        return await self._to_snapshot(connection, subscription, target.snapshot, by=by)

    async def _to_time(
        self, connection: ResourceConnection, subscription: Subscription, time: datetime, *, by: str
    ) -> Replay:
        shards: list[ShardReplay] = []
        replay_since = subscription.replay_since(self._clock.now())
        for seek in self._seeks(subscription, by=by):
            found = await cursors.seek_to_time(connection, seek, time=time, replay_since=replay_since)
            if found is None:
                raise _OtherLogs
            shards.append(found)
        if replay_since is None:
            why = (
                "Acked messages do not come again: neither retainAckedMessages of the subscription nor "
                "messageRetentionDuration of its topic is set."
            )
        else:
            why = f"Acked messages published before {format_timestamp(replay_since)} are not retained."
        return replay(shards, retained_since=replay_since, why=why)

    async def _to_snapshot(
        self, connection: ResourceConnection, subscription: Subscription, name: str, *, by: str
    ) -> Replay:
        check_shape(name, "snapshots")
        shards: list[ShardReplay] = []
        await lock_cursors_of(connection, subscription.subscription_id)  # before snapshots: the one lock order
        snapshot = await existing_snapshot(connection, name, now=self._clock.now(), lock=True)
        _check_topic(subscription, snapshot)
        for seek in self._seeks(subscription, by=by):
            found = await cursors.seek_to_snapshot(connection, seek, snapshot_id=snapshot.snapshot_id)
            if found is None:
                raise _OtherLogs
            shards.append(found)
        retained_since = self._clock.now() - subscription.retention
        why = (
            f"Messages published before {format_timestamp(retained_since)} are older than the retention of the "
            "subscription and its topic, and do not come."
        )
        return replay(shards, retained_since=retained_since, why=why)

    def _sought(self, subscription: Subscription) -> None:
        self._activity.used(subscription.subscription_id)
        self._wake_ups.redeliverable(subscription.subscription_id)

    def _seeks(self, subscription: Subscription, *, by: str = "") -> Sequence[ShardSeek]:
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
                author=Author(principal=by),
            )
            for shard_id, first_attempt_id in zip(subscription.shard_ids, ids, strict=True)
        ]


async def _compared(
    connection: ResourceConnection,
    shards: Sequence[ShardSeek],
    before: Sequence[Holding | None],
    *,
    time: datetime | None,
    effort: Effort = FOR_PREVIEWS,
) -> SeekPreview:
    """Compares these shards with what they were `before`, as the transaction read them, and returns the
    differences.
    """
    found = []
    for shard, had in zip(shards, before, strict=True):
        has = await read_holding(connection, shard)
        assert had is not None  # else there was nothing to seek
        assert has is not None
        found.append(await compare(connection, shard, had, has, time=time, effort=effort))
    return in_all(found)


def _check_topic(subscription: Subscription, snapshot: Snapshot) -> None:
    if snapshot.topic_id != subscription.topic_id or snapshot.topic == DELETED_TOPIC:
        raise FailedPrecondition(
            f"The subscription's topic {subscription.topic} is different from that of the snapshot "
            f"{snapshot.topic}; they must match in order for Seek to work. Note that if a topic is deleted "
            "and then re-created with the same name, it is considered a distinct topic for these purposes."
        )
