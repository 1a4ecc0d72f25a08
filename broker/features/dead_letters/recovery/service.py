"""Starts the operations that push messages again (G2); an extension."""

from collections.abc import Mapping
from datetime import datetime

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.log.copied_messages import read_ends
from broker.core.log.log_walk import LogWalk
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.permitted import AskPermission
from broker.core.resources.subscription_service import attached_subscription
from broker.db.driver.database import Database
from broker.features.dead_letters.chosen import Chosen, RedriveOptions
from broker.features.dead_letters.dead_letter_groups import count_dead_letters
from broker.features.dead_letters.recovery.push_replay import (
    Meant,
    Missed,
    MissingOptions,
    RecoverOptions,
    is_of_push,
    needed,
)
from broker.features.dead_letters.recovery.rows import find_expired
from broker.features.dead_letters.redriving.service import ChosenDeadLetters, RedrivePlan, RedriveService
from broker.features.operations.operation import Operation, Origin, check_rate
from broker.features.operations.service import OperationService
from broker.model.errors import FailedPrecondition, InvalidArgument
from broker.model.names import leaf
from broker.model.operation_verb import Verb
from broker.model.preview import Safeguards
from broker.model.subscription import Subscription
from broker.model.timestamps import END_OF_TIME


class PushReplayService:
    """Starts the operations that recovery/operation.py runs."""

    def __init__(
        self, database: Database, clock: DatabaseClock, operations: OperationService, redrives: RedriveService
    ) -> None:
        self._database = database
        self._clock = clock
        self._operations = operations
        self._redrives = redrives

    async def recover(
        self, name: str, options: RecoverOptions, *, origin: Origin, may_consume: AskPermission
    ) -> RedrivePlan:
        """Starts a recovery of what was dead-lettered since a time, because a push failed or the retention ended.

        With `validate_only` returns the operation that would be started.  Dead letters stay in subscriptions for
        which `may_consume` raises PermissionDenied.  Raises InvalidArgument (the time, the rate), NotFound,
        FailedPrecondition (the subscription is detached or has no endpoint), QuotaExceeded.
        """
        since = needed(options.start_time)
        check_rate(options.max_rate)
        subscription, _ = await self._pushed(name)
        dead_letters = await self._dead_letters(subscription, options, may_consume)
        meant, expired = await self._expired(subscription, since, options.safeguards)
        operation = await self._operations.begin(
            Verb.RECOVER,
            name,
            origin=origin,
            request={**dead_letters.request, "meant": meant.to_json(), **_rate(options.max_rate)},
            total=dead_letters.total + expired,
            is_estimate=expired > 0,
            safeguards=options.safeguards,
        )
        return RedrivePlan(
            operation=operation,
            validate_only=options.safeguards.validate_only,
            taken_from=dead_letters.taken_from,
            left_alone=dead_letters.left_alone,
        )

    async def replay_missing(self, name: str, options: MissingOptions, *, origin: Origin) -> Operation:
        """Starts a replay of what was published since a time and before the endpoint was set, if that has not
        accepted it.

        With `validate_only` returns the operation that would be started.  Raises InvalidArgument (the times, the
        rate), NotFound, FailedPrecondition (the subscription is detached or has no endpoint), QuotaExceeded.
        """
        since = needed(options.start_time)
        check_rate(options.max_rate)
        subscription, set_at = await self._pushed(name)
        before = options.safeguards.before or END_OF_TIME
        endpoint_time = min(options.endpoint_time or set_at, self._clock.now(), before)
        if since >= endpoint_time:
            raise InvalidArgument(
                "startTime must be before endpointTime: what was published since the endpoint was set goes to it "
                f"anyway (startTime={since.isoformat()}, endpointTime={endpoint_time.isoformat()})."
            )
        async with self._database.hot() as hot:
            ends = await read_ends(hot, shard_ids=subscription.shard_ids, since=since, until=endpoint_time)
        heads = {shard_id: end.head for shard_id, end in ends.items()}
        walk = _walk(subscription, dict.fromkeys(ends, since), heads, until=endpoint_time)
        meant = Meant(missed=Missed.UNSEEN, walk=walk, since=endpoint_time, until=END_OF_TIME)
        return await self._operations.begin(
            Verb.REPLAY_MISSING,
            name,
            origin=origin,
            request={"meant": meant.to_json(), **_rate(options.max_rate)},
            total=sum(end.count for end in ends.values()),
            is_estimate=True,
            safeguards=options.safeguards,
        )

    async def _pushed(self, name: str) -> tuple[Subscription, datetime]:
        """Returns a subscription and the time at which its endpoint was set.  Raises NotFound,
        FailedPrecondition.
        """
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, name)
            set_at = await subscriptions.read_endpoint_time(
                connection, subscription_id=subscription.subscription_id
            )
        if not subscription.is_push:
            raise FailedPrecondition(
                "The subscription has no endpoint: use :redrive, :resend or :seek to have its messages again "
                f"(resource={leaf(name)})."
            )
        return subscription, set_at

    async def _dead_letters(
        self, subscription: Subscription, options: RecoverOptions, may_consume: AskPermission
    ) -> ChosenDeadLetters:
        """Chooses the dead letters whose reason is a failed push."""
        since = needed(options.start_time)
        until = min(self._clock.now(), options.safeguards.as_of or END_OF_TIME)
        any_reason = Chosen(subscription_id=subscription.subscription_id, since=since, until=until)
        async with self._database.hot() as hot:
            counts = await count_dead_letters(hot, chosen=any_reason, shard_ids=subscription.shard_ids)
        reasons = sorted(filter(is_of_push, counts))
        if not reasons:  # none would mean any
            return ChosenDeadLetters(request={}, total=0, is_estimate=False, taken_from=(), left_alone=())
        wanted = RedriveOptions(
            start_time=since, end_time=any_reason.until, reasons=reasons, safeguards=options.safeguards
        )
        return await self._redrives.choose(subscription.name, wanted, may_consume)

    async def _expired(
        self, subscription: Subscription, since: datetime, safeguards: Safeguards
    ) -> tuple[Meant, int]:
        """Returns the choice of expired messages, and about how many there are."""
        until = min(self._clock.now(), safeguards.as_of or END_OF_TIME)
        async with self._database.hot() as hot:
            found = await find_expired(hot, subscription=subscription, since=since, until=until)
        starts = {shard_id: expired.start for shard_id, expired in found.items()}
        lasts = {shard_id: expired.last_seq for shard_id, expired in found.items()}
        walk = _walk(subscription, starts, lasts, until=END_OF_TIME)
        meant = Meant(missed=Missed.EXPIRED, walk=walk, since=since, until=until)
        return meant, sum(expired.count for expired in found.values())


def _walk(
    subscription: Subscription, starts: Mapping[int, datetime], ends: Mapping[int, int], *, until: datetime
) -> LogWalk:
    return LogWalk(
        subscription_id=subscription.subscription_id,
        starts=starts,
        ends=ends,
        until=until,
        filter_path=subscription.filter_path,
        body_path=subscription.body_path,
    )


def _rate(max_rate: float | None) -> dict[str, float]:
    return {} if max_rate is None else {"maxMessagesPerSecond": max_rate}
