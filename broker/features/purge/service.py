"""Purges a topic for all its subscriptions, or a subscription by a filter; an extension (G2)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_logs
from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.filtering.changes import compiled
from broker.core.log.copied_messages import read_ends
from broker.core.log.copying import progress_json
from broker.core.log.log_walk import LogWalk
from broker.core.resources.subscription_service import attached_subscription
from broker.core.resources.topic_loss import TopicLoss, begin_topic_loss, measure_topic
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import ResourceConnection
from broker.features.operations.operation import Operation, Origin, check_rate
from broker.features.operations.service import OperationService
from broker.features.purge.purging import PurgeOptions
from broker.features.purge.rows import count_matching, read_oldest_backlog
from broker.model.operation_verb import Verb
from broker.model.preview import UNGUARDED, Preview, Safeguards, Undone
from broker.model.timestamps import END_OF_TIME
from broker.observability.log import fields_of
from broker.observability.lost_dead_letters import LostDeadLetters
from broker.observability.metrics.families import PURGES

_MAX_COUNTED = 5_000  # messages that one check counts
_MAX_CHECKS = 20  # of a dry run, each of at most 10,000 messages


class PurgeService:
    """The purges of topics, and of subscriptions by a filter.

    A purged topic gets new logs, so the cost of a purge does not depend on the number of messages.  A purge by a
    filter runs step by step (features/purge/operation.py); a purge of a whole subscription is a seek
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

    async def purge_topic(self, name: str, safeguards: Safeguards = UNGUARDED, *, by: str = "") -> Preview | None:
        """Drops all messages that were published on a topic, for its subscriptions too, and deletes its snapshots.

        A concurrent publish is stored either before the purge, and dropped, or after it.  Returns the preview if
        the caller asked only for that.  Raises NotFound, Aborted, FailedPrecondition.
        """
        try:
            async with self._database.transaction() as connection:
                topic = await topics.lock_topic(connection, name=name)
                if topic is None:
                    raise topic_not_found(name)
                loss = await begin_topic_loss(connection, topic, safeguards, now=self._clock.now())
                measured = None
                if loss is not None and safeguards.validate_only:  # before the shards are closed: publishes go on
                    measured = await _measure(connection, loss)
                names, lost = await topic_logs.replace_logs(connection, topic=topic, now=self._clock.now())
                if loss is not None:
                    measured = measured or await _measure(connection, loss)
                    losses = {**measured.losses, "deadLetters": sum(lost.values())}
                    safeguards.settle(replace(measured, losses=losses))
        except Undone as undone:
            return undone.preview
        self._counts[PURGES["topic"]] += 1
        self._states.report(
            "purged topics", f"{name} is purged{f' by {by}' if by else ''}", fields=fields_of(name, principal=by)
        )
        self._lost.report(lost, f"their topic, {name}, was purged")
        await self._wake_ups.announce(name, *names)
        return None

    async def purge_matching(self, name: str, options: PurgeOptions, *, origin: Origin) -> Operation:
        """Starts a purge of a subscription by a filter.  Returns the operation, which `validate_only` does not
        start.

        Raises InvalidArgument (the filter, the rate), NotFound, FailedPrecondition (detached), QuotaExceeded (too
        many operations), Aborted (the count is not the expected one).
        """
        check_rate(options.max_rate)
        async with self._database.transaction() as connection:
            subscription = await attached_subscription(connection, name)
        paths = compiled(options.filter, subscription)
        safeguards = options.safeguards
        until = min(options.before or END_OF_TIME, safeguards.before or END_OF_TIME, END_OF_TIME)
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
        total, counts, is_estimate = sum(end.count for end in ends.values()), Counter[str](), True
        if safeguards.asked:
            checks = _MAX_CHECKS if safeguards.max_counted is None else safeguards.max_counted // _MAX_COUNTED
            counts, is_all = await self._count(meant, checks)
            total, is_estimate = (counts.total(), False) if is_all else (total, True)
        operation = await self._operations.begin(
            Verb.PURGE,
            name,
            origin=origin,
            request={"meant": meant.to_json()} | rate,
            total=total,
            is_estimate=is_estimate,
            safeguards=safeguards,
        )
        if safeguards.validate_only:
            return replace(operation, counts=counts)
        self._counts[PURGES["subscription"]] += 1
        return operation

    async def _count(self, meant: LogWalk, max_checks: int) -> tuple[Counter[str], bool]:
        """Counts the messages that a purge would process, by outcome.  Returns also whether it has counted all of
        them.
        """
        counts: Counter[str] = Counter({Outcome.PURGED: 0})
        progress: Mapping[str, Any] = {}
        for _ in range(max_checks):
            after = meant.next_position(progress)
            if after is None:
                return counts, True
            async with self._database.hot() as hot:
                found = await count_matching(hot, meant, after, _MAX_COUNTED, now=self._clock.now())
            counts.update(found.outcomes.values())
            progress = progress_json(after.shard_id, found.rest)
        return counts, False


async def _measure(connection: ResourceConnection, loss: TopicLoss) -> Preview:
    """Counts the messages that a purge of a topic takes from the topic itself or from any of its subscriptions."""
    topic = loss.topic
    longest = await subscriptions.longest_retention(connection, topic_id=topic.topic_id)
    retention = max(longest or timedelta(0), topic.message_retention or timedelta(0))
    return await measure_topic(connection, loss, retention=retention)
