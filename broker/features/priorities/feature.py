"""Registers priorities: their publish rule, and the order in which shards with levels are claimed from."""

from functools import partial

from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.priorities.claim_levels import AllLevels
from broker.features.priorities.publish_rule import PUBLISH_RULE


def register(core: Core) -> Feature:
    return Feature(publish_rules=[PUBLISH_RULE], make_shard_orders=partial(AllLevels, core.database))
