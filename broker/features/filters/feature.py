"""Registers the calls that change and test filters."""

from broker.core.context.core import Core
from broker.core.resources.subscription_service import SubscriptionService
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.feature import Feature
from broker.features.filters.change_rows import forget_filters
from broker.features.filters.change_service import FilterChangeService
from broker.features.filters.rpcs import make_rpcs
from broker.features.filters.trial_service import FilterService


def register(
    core: Core, *, subscriptions: SubscriptionService, replica_reads: ReplicaReads, turns: ResourceTurns
) -> Feature:
    """`replica_reads` and `turns`: of calls that read much."""
    return Feature(
        rpcs=make_rpcs(
            changes=FilterChangeService(core),
            trials=FilterService(core.database, replica_reads, core.clock, turns),
            subscriptions=subscriptions,
            views=core.views,
        ),
        clean_ups=[forget_filters],
    )
