"""Reads figures of topics from what the lag board and history have sampled."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from broker.core.lag.lag import NOT_SAMPLED, LagState
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.history_tiers import CHUNK, FINEST, SECOND, floor
from broker.model.names import project_of
from broker.model.topic import Topic

_READ_PUBLISH_RATES = statements.hot("read_publish_rates")
_READ_TOPIC_SUBSCRIPTIONS = statements.hot("read_topic_subscriptions")

# From the worst on: what delivers nothing, what delivers part, what was asked for, what is well.
WORST_FIRST: Sequence[str] = (
    LagState.ENDPOINT_FAILING,
    LagState.NO_CONSUMERS,
    LagState.BLOCKED_KEY,
    LagState.RETRYING,
    LagState.SLOW_ENDPOINT,
    LagState.SLOW_CONSUMERS,
    LagState.WAITING_FOR_SLOTS,
    LagState.PAUSED,
    LagState.EXPORT,
    NOT_SAMPLED,
    LagState.RECENT,
    LagState.CAUGHT_UP,
    LagState.DETACHED,
)
_PUBLISHED = "pubsub_topic_published_messages_total"  # of history (features/history)
_RATED = timedelta(minutes=1)


class WorstSubscription(NamedTuple):
    """The subscription of a topic that is off worst; `verdict` is "" until it is sampled."""

    name: str
    state: str
    verdict: str


class Subscribed(NamedTuple):
    """The subscriptions of a topic.  `worst` is None if none of them belongs to the topic's project."""

    total: int = 0
    worst: WorstSubscription | None = None


class Sampled(NamedTuple):
    """The sampled figures of a topic.  `rate`: messages published a second."""

    rate: float
    subscribed: Subscribed


async def read_sampled(
    connection: HotConnection, topics: Sequence[Topic], *, now: datetime
) -> Mapping[str, Sampled]:
    """Returns what was sampled of topics of one project, by name."""
    until = floor(now, FINEST.resolution) - FINEST.resolution * SECOND  # newer points may not be written yet
    rates = {
        "topics": [topic.name for topic in topics],
        "metric": _PUBLISHED,
        "resolution": FINEST.resolution,
        "chunk_size": CHUNK,
        "since": until - _RATED,
        "until": until,
    }
    subscribed = {
        "topic_ids": [topic.topic_id for topic in topics],
        "project_prefix": f"{project_of(topics[0].name)}/" if topics else "",
        "states": list(WORST_FIRST),
        "not_sampled": NOT_SAMPLED,
    }
    published, attached = await connection.run(
        (_READ_PUBLISH_RATES, rates), (_READ_TOPIC_SUBSCRIPTIONS, subscribed)
    )
    counts = {row.topic: row.messages for row in published}
    by_id = {row.topic_id: Subscribed(row.subscriptions, _worst(row)) for row in attached}
    return {
        topic.name: Sampled(
            (counts.get(topic.name) or 0) / _RATED.total_seconds(), by_id.get(topic.topic_id, Subscribed())
        )
        for topic in topics
    }


def _worst(row: Any) -> WorstSubscription | None:
    if row.worst_name is None:
        return None
    return WorstSubscription(row.worst_name, row.worst_state, row.worst_verdict or "")
