"""Registers the view STATS of lists of topics."""

from broker.access.policies.authorizer import Authorizer
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.topic_stats.stats_view import NAME, StatsView


def register(core: Core, *, authorizer: Authorizer | None) -> Feature:
    """Registers the feature.  `authorizer` is None if every caller may see everything."""
    return Feature(topic_views={NAME: StatsView(core.database, core.clock, authorizer)})
