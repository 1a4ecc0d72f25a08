"""Registers searching a project."""

from broker.core.context.core import Core
from broker.fairness.resource_turns import ResourceTurns
from broker.features.feature import Feature
from broker.features.search.rpcs import make_rpcs
from broker.features.search.service import SearchService


def register(core: Core, *, turns: ResourceTurns) -> Feature:
    """Registers the feature.  `turns` are those of calls that read much."""
    return Feature(rpcs=make_rpcs(SearchService(core.database, core.clock, turns)))
