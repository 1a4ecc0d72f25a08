"""Purging a topic: what it has is gone for everybody; and a subscription by a filter; an extension (G2)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.catalog import topic_logs
from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.filtering.changes import compiled
from broker.core.log.copied_messages import read_ends
from broker.core.log.copying import progress_json
from broker.core.log.log_walk import LogWalk
from broker.core.resources.subscription_service import attached_subscription
from broker.core.resources.topic_service import topic_not_found
from broker.features.operations.operation import Operation, Origin, check_rate
from broker.features.operations.service import OperationService
from broker.features.purge.purging import PurgeOptions
from broker.features.purge.rows import count_matching, read_oldest_backlog
from broker.model.operation_verb import Verb
from broker.model.timestamps import END_OF_TIME
from broker.observability.log import fields_of
from broker.observability.lost_dead_letters import LostDeadLetters
from broker.observability.metrics.families import PURGES

_MAX_COUNTED = 5_000  # messages that one check counts
_MAX_CHECKS = 20  # of a dry run, each of at most 10,000 messages


class PurgeService:
    """A topic that is purged has new logs: so it costs the same however much was in the old ones.  By a filter a
    subscription is purged step by step (features/purge/operation.py), without one by a seek
    (core/backlog/seeking/seek_service.py).
    """

    def __init__(self, core: Core, operations: OperationService) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._operations = operations
        self._states = core.states
        self._counts = core.counters.process
        self._lost = LostDeadLetters(core.states, core.counters)

    async def purge_topic(self, name: str, *, by: str = "") -> None:
        """Forget all that was published before, for the topic, its subscriptions and its snapshots, which go.

        A publish under way is stored before, and forgotten, or after.  Raises NotFound.
        """
        async with self._database.transaction() as connection:
            topic = await topics.lock_topic(connection, name=name)
            if topic is None:
                raise topic_not_found(name)
            names, lost = await topic_logs.replace_logs(connection, topic=topic, now=self._clock.now())
        self._counts[PURGES["topic"]] += 1
        self._states.report(
            "purged topics", f"{name} is purged{f' by {by}' if by else ''}", fields=fields_of(name, principal=by)
        )
        self._lost.report(lost, f"their topic, {name}, was purged")
        await self._wake_ups.announce(name, *names)

    async def purge_matching(self, name: str, options: PurgeOptions, *, origin: Origin) -> Operation:
        """The operation, as it has begun or (`validate_only`) would begin.

        Raises InvalidArgument (the filter, the rate), NotFound, FailedPrecondition (detached), QuotaExceeded (too
        many operations).
        """
        check_rate(options.max_rate)
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, name)
        paths = compiled(options.filter, subscription)
        until = min(options.before or END_OF_TIME, END_OF_TIME)
        where = {"shard_ids": subscription.shard_ids}
        async with self._database.hot() as hot:
            starts = await read_oldest_backlog(hot, subscription_id=subscription.subscription_id, **where)
            since = min(starts.values(), default=END_OF_TIME)
            ends = await read_ends(hot, **where, since=since, until=until)
        meant = LogWalk(
            subscription_id=subscription.subscription_id,
            starts={shard_id: start for shard_id, start in starts.items() if shard_id in ends},
            ends={shard_id: end.head for shard_id, end in ends.items()},
            until=until,
            filter_path=paths.filter_path,
            body_path=paths.body_path,
        )
        rate = {} if options.max_rate is None else {"maxMessagesPerSecond": options.max_rate}
        begin = self._operations.plan if options.validate_only else self._operations.start
        operation = await begin(
            Verb.PURGE,
            name,
            origin=origin,
            request={"meant": meant.to_json()} | rate,
            total=sum(end.count for end in ends.values()),
            is_estimate=True,
        )
        if options.validate_only:
            return await self._counted(operation, meant)
        self._counts[PURGES["subscription"]] += 1
        return operation

    async def _counted(self, operation: Operation, meant: LogWalk) -> Operation:
        """The operation with the messages that it would purge; `is_estimate` if there may be more of them."""
        counts: Counter[str] = Counter({Outcome.PURGED: 0})
        progress: Mapping[str, Any] = {}
        for _ in range(_MAX_CHECKS):
            after = meant.next_position(progress)
            if after is None:
                return replace(operation, counts=counts, total=counts.total(), is_estimate=False)
            async with self._database.hot() as hot:
                found = await count_matching(hot, meant, after, _MAX_COUNTED, now=self._clock.now())
            counts.update(found.outcomes.values())
            progress = progress_json(after.shard_id, found.rest)
        return replace(operation, counts=counts)
