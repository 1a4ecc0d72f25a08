"""Registers the lag board: the sampler, and the call that lists its samples."""

from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.core.publishing.publish_rights import CheckPublisher
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.feature import Feature
from broker.features.lag_board.rpcs import make_rpcs
from broker.features.lag_board.sample_rows import forget_old_samples
from broker.features.lag_board.sampler import LOOK_SECONDS, LagSampler
from broker.features.lag_board.service import LagService


def register(
    core: Core,
    *,
    replica_reads: ReplicaReads,
    turns: ResourceTurns,
    check_publisher: CheckPublisher,
    interval_seconds: float,
) -> Feature:
    """Registers the feature.  `replica_reads` and `turns` are those of calls that read much.

    `interval_seconds`: the time from one sample to the next.
    """
    sampler = LagSampler(core.database, core.clock, interval_seconds=interval_seconds, states=core.states)
    return Feature(
        rpcs=make_rpcs(LagService(core.database, replica_reads, core.clock, turns, check_publisher)),
        workers={"lag samples": PeriodicWorker(sampler.run_once, min(LOOK_SECONDS, interval_seconds))},
        clean_ups=[forget_old_samples],
    )
