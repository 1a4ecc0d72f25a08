"""Starts copies, which publish the retained messages of a topic on another topic (G2); an extension."""

from datetime import timedelta

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.filtering.changes import compiled
from broker.core.log.copied_messages import read_ends
from broker.core.log.copying import CopyOptions, Meant, check_copy, meant_json
from broker.core.process.database_clock import DatabaseClock
from broker.core.resources.topic_service import existing_topic
from broker.db.driver.database import Database
from broker.features.operations.operation import Operation, Origin, check_rate
from broker.features.operations.service import OperationService, open_target
from broker.model.operation_verb import Verb
from broker.model.timestamps import END_OF_TIME


class CopyService:
    """Starts the operations that features/import_export/copy_operation.py runs."""

    def __init__(self, database: Database, clock: DatabaseClock, operations: OperationService) -> None:
        self._database = database
        self._clock = clock
        self._operations = operations

    async def copy(self, name: str, options: CopyOptions, *, origin: Origin) -> Operation:
        """The operation, as it has begun or (`validate_only`) would begin.

        Raises InvalidArgument (the filter, the rate, the times), NotFound (either topic), FailedPrecondition (the
        target is frozen or has transforms), QuotaExceeded (too many operations).
        """
        check_copy(options)
        check_rate(options.max_rate)
        meant, total = await self._mean(name, options)
        rate = {} if options.max_rate is None else {"maxMessagesPerSecond": options.max_rate}
        return await self._operations.begin(
            Verb.COPY,
            name,
            origin=origin,
            request={"meant": meant_json(meant), "targetTopic": meant.target} | rate,
            total=total,
            is_estimate=bool(options.filter),
            safeguards=options.safeguards,
        )

    async def _mean(self, name: str, options: CopyOptions) -> tuple[Meant, int]:
        """Returns the messages that a copy covers, and their number without the filter."""
        paths = compiled(options.filter)
        async with self._database.transaction() as connection:
            source = await existing_topic(connection, name)
            target = await open_target(connection, options.target)
            longest = await subscriptions.longest_retention(connection, topic_id=source.topic_id)
        kept_since = self._clock.now() - max(longest or timedelta(0), source.message_retention or timedelta(0))
        since = max(kept_since, options.start_time or kept_since)
        until = min(options.end_time or END_OF_TIME, options.safeguards.before or END_OF_TIME, END_OF_TIME)
        async with self._database.hot() as hot:
            ends = await read_ends(hot, shard_ids=source.shard_ids, since=since, until=until)
        meant = Meant(
            source_id=source.topic_id,
            target=target.name,
            target_id=target.topic_id,
            ends={shard_id: end.head for shard_id, end in ends.items()},
            since=since,
            until=until,
            filter_path=paths.filter_path,
            body_path=paths.body_path,
        )
        return meant, sum(end.count for end in ends.values())
