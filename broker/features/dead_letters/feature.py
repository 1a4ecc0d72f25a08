"""Registers dead letters: their calls, the forwarder, and the operations that redrive and recover them."""

from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_rights import CheckPublisher
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.dead_letters.dead_letter_incidents import DeadLetterIncidents
from broker.features.dead_letters.discarding.service import DiscardService
from broker.features.dead_letters.editing.service import EditService
from broker.features.dead_letters.forwarding.dead_letter_forwarder import DeadLetterForwarder
from broker.features.dead_letters.project.service import ProjectDeadLetterService
from broker.features.dead_letters.recovery.operation import PushReplayKind
from broker.features.dead_letters.recovery.service import PushReplayService
from broker.features.dead_letters.redriving.operation import RedriveKind
from broker.features.dead_letters.redriving.service import RedriveService
from broker.features.dead_letters.rpcs import make_rpcs
from broker.features.dead_letters.service import DeadLetterService
from broker.features.feature import Feature
from broker.features.operations.operations import Operations
from broker.model.operation_verb import Verb


def register(
    core: Core,
    *,
    preparation: Preparation,
    check_publisher: CheckPublisher,
    operations: Operations,
    replica_reads: ReplicaReads,
    turns: ResourceTurns,
    interval_seconds: float,
) -> Feature:
    """Registers the feature.  `replica_reads` and `turns` are for expensive reads.

    `interval_seconds`: the time between two runs of the forwarder.
    """
    redriving = RedriveKind(core, operations.targets)
    replaying = PushReplayKind(core, redriving)
    operations.add_kind(Verb.REDRIVE, redriving)
    operations.add_kind(Verb.RECOVER, replaying)
    operations.add_kind(Verb.REPLAY_MISSING, replaying)
    forwarder = DeadLetterForwarder(core, preparation, check_publisher)
    redrives = RedriveService(core, operations.service)
    return Feature(
        rpcs=make_rpcs(
            dead_letters=DeadLetterService(core.database, replica_reads, core.clock, turns),
            project_dead_letters=ProjectDeadLetterService(core.database, replica_reads, core.clock, turns),
            redrives=redrives,
            discards=DiscardService(core),
            edits=EditService(core, preparation),
            push_replays=PushReplayService(core.database, core.clock, operations.service, redrives),
            views=core.views,
        ),
        workers={"dead-letter forwarder": PeriodicWorker(forwarder.run_once, interval_seconds)},
        listeners=[DeadLetterIncidents(core.states)],
        stop=forwarder.report,
    )
