"""The view STATS of a list of topics: each topic with its figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.access.policies.authorizer import Authorizer, Required
from broker.access.principals.caller import Caller
from broker.core.log.retained import Retained, estimate_retained
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.features.topic_stats.rows import Sampled, read_sampled
from broker.model.errors import PermissionDenied
from broker.model.topic import Topic

NAME = "STATS"
LIST_SUBSCRIPTIONS = "pubsub.subscriptions.list"


class StatsView:
    """Adds `stats` to topics: three statements for a page, which read samples and estimates, and count no messages.

    `authorizer` is None if every caller may see everything.
    """

    def __init__(self, database: Database, clock: DatabaseClock, authorizer: Authorizer | None) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def __call__(
        self, caller: Caller, project: str, topics: Sequence[Topic]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Returns the figures of topics.  Only callers who may list the subscriptions of the project see which of
        these is the worst.  Raises Unavailable.
        """
        if not topics:
            return {}
        sees_worst = await self._may_list_subscriptions(caller, project)
        async with self._database.hot() as connection:
            sampled = await read_sampled(connection, topics, now=self._clock.now())
            shard_ids = [shard_id for topic in topics for shard_id in topic.shard_ids]
            retained = await estimate_retained(connection, shard_ids=shard_ids)
        return {
            topic.name: {
                "stats": stats_json(
                    sampled[topic.name],
                    [retained.get(shard_id, Retained()) for shard_id in topic.shard_ids],
                    shows_worst=sees_worst,
                )
            }
            for topic in topics
        }

    async def _may_list_subscriptions(self, caller: Caller, project: str) -> bool:
        if self._authorizer is None:
            return True
        try:
            await self._authorizer.check(caller, [Required(LIST_SUBSCRIPTIONS, project)])
        except PermissionDenied:
            return False
        return True


def stats_json(sampled: Sampled, retained: Sequence[Retained], *, shows_worst: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "publishedMessagesPerSecond": round(sampled.rate, 3),
        "retainedMessagesEstimate": sum(each.messages for each in retained),
        "retainedBytesEstimate": sum(each.size for each in retained),
        "subscriptionCount": sampled.subscribed.total,
    }
    worst = sampled.subscribed.worst
    if worst is not None and shows_worst:
        body["worstSubscription"] = {"subscription": worst.name, "deliveryState": worst.state}
        if worst.verdict:
            body["worstSubscription"]["verdict"] = worst.verdict
    return body
