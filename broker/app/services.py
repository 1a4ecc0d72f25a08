"""Builds the services of the core, and the rows of the calls that they implement."""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.api.row import Row
from broker.api.standard_rpcs import STANDARD_RPCS
from broker.app.config import AppConfig
from broker.app.guard import Guard
from broker.app.messages import Messages
from broker.core.acking import rpcs as acking
from broker.core.acking.service import AcknowledgeService
from broker.core.backlog.seeking import rpcs as seeking
from broker.core.backlog.seeking.backlog_loss import measure_backlog
from broker.core.backlog.seeking.seek_service import SeekService
from broker.core.backlog.seeking.snapshot_service import SnapshotService
from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.core.publishing import rpcs as publishing
from broker.core.publishing.service import PublishService
from broker.core.pulling import rpcs as pulling
from broker.core.pulling.pull_service import PullService
from broker.core.pulling.stream_service import StreamingPullService
from broker.core.resources import rpcs as resources
from broker.core.resources.freeze_service import FreezeService
from broker.core.resources.pause_service import PauseService
from broker.core.resources.subscription_service import SubscriptionService
from broker.core.resources.topic_service import TopicService


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreServices:
    """The services of the core, which features call, too."""

    topics: TopicService
    subscriptions: SubscriptionService
    freezes: FreezeService
    pauses: PauseService
    snapshots: SnapshotService
    seeks: SeekService
    publish: PublishService
    pull: PullService
    streaming_pull: StreamingPullService
    acknowledge: AcknowledgeService

    def make_rpcs(self) -> Sequence[Row]:
        """The rows of the calls that every broker serves."""
        return [
            *publishing.make_rpcs(self.publish),
            *pulling.make_rpcs(pulls=self.pull, streams=self.streaming_pull, acknowledge=self.acknowledge),
            *acking.make_rpcs(self.acknowledge),
            *seeking.make_rpcs(snapshots=self.snapshots, seeks=self.seeks),
            *resources.make_rpcs(
                topics=self.topics,
                subscriptions=self.subscriptions,
                freezes=self.freezes,
                pauses=self.pauses,
            ),
            *STANDARD_RPCS,
        ]


def make_services(
    config: AppConfig, core: Core, *, guard: Guard, messages: Messages, next_due: NextDue
) -> CoreServices:
    """`next_due` receives the times at which delayed messages are due."""
    claiming, acking = messages.claiming, messages.acking
    return CoreServices(
        topics=TopicService(
            core,
            supported=messages.publishing.preparation.supported,
            shards_per_topic=config.shards_per_topic,
        ),
        subscriptions=SubscriptionService(
            core,
            secrets=guard.secrets,
            measure_backlog=measure_backlog,
            min_delivery_attempts=config.min_delivery_attempts,
            only_own_accounts=guard.access is not None,
        ),
        freezes=FreezeService(core),
        pauses=PauseService(core),
        snapshots=SnapshotService(core, claiming.activity),
        seeks=SeekService(core, claiming.activity),
        publish=PublishService(
            core, messages.publishing.coalescer, messages.publishing.preparation, next_due=next_due
        ),
        pull=PullService(
            core,
            claiming.long_poll,
            claiming.activity,
            claiming.readers,
            wait_seconds=config.pull_wait_seconds,
        ),
        streaming_pull=StreamingPullService(
            core,
            long_poll=claiming.long_poll,
            outstanding=claiming.outstanding,
            activity=claiming.activity,
            readers=claiming.readers,
        ),
        acknowledge=AcknowledgeService(core, acking.coalescer, claiming.activity),
    )
