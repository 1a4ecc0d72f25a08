"""Registers the views of topics, subscriptions and messages, and the reports on the broker itself."""

from broker.core.acking.delivery_recorder import DeliveryRecords
from broker.core.context.core import Core
from broker.core.process.tails import Tails
from broker.core.publishing.publish_rights import CheckPublisher
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.feature import Feature
from broker.features.inspect.backlog_service import BacklogMessageService
from broker.features.inspect.consumer_service import ConsumerService
from broker.features.inspect.data_service import MessageDataService
from broker.features.inspect.deliveries.service import DeliveryReportService
from broker.features.inspect.fleet.rpcs import make_fleet_rpcs
from broker.features.inspect.fleet.service import FleetService
from broker.features.inspect.histogram_service import HistogramService
from broker.features.inspect.publisher_service import TopicPublisherService
from broker.features.inspect.rpcs import make_rpcs
from broker.features.inspect.tail_service import TailService
from broker.features.inspect.topic_service import TopicMessageService


def register(
    core: Core,
    *,
    replica_reads: ReplicaReads,
    turns: ResourceTurns,
    tails: Tails,
    records: DeliveryRecords,
    check_publisher: CheckPublisher,
    fleet: FleetService,
) -> Feature:
    """Registers the feature.  `replica_reads` and `turns` are for expensive reads.

    Tails show new messages, so they read from the primary.
    """
    database, clock = core.database, core.clock
    return Feature(
        rpcs=[
            *make_rpcs(
                consumers=ConsumerService(database, clock),
                publishers=TopicPublisherService(database, check_publisher),
                delivery_reports=DeliveryReportService(database, clock, turns, records),
                backlog_messages=BacklogMessageService(database, replica_reads, clock, turns),
                topic_messages=TopicMessageService(database, replica_reads, clock, turns),
                message_data=MessageDataService(database, turns),
                views=core.views,
                histograms=HistogramService(database, replica_reads, clock, turns),
                tails=TailService(database, clock=clock, tasks=core.tasks, turns=turns, tails=tails),
            ),
            *make_fleet_rpcs(fleet),
        ]
    )
