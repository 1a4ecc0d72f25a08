"""The services that only read what may be much: messages, and where subscriptions stand (F3)."""

from dataclasses import dataclass

from broker.core.acking.delivery_recorder import DeliveryRecords
from broker.core.context.core import Core
from broker.core.process.tails import Tails
from broker.core.publishing.publish_rights import CheckPublisher
from broker.db.driver.replica_reads import Looks
from broker.fairness.resource_turns import LOOKING_AT_ONCE, HasRoom, ResourceTurns
from broker.fairness.turn_counts import TurnCounts
from broker.features.dead_letters.service import DeadLetterService
from broker.features.filters.trial_service import FilterService
from broker.features.import_export.export_service import ExportService
from broker.features.inspect.backlog_service import BacklogMessageService
from broker.features.inspect.consumer_service import ConsumerService
from broker.features.inspect.deliveries.service import DeliveryReportService
from broker.features.inspect.lag_service import LagService
from broker.features.inspect.publisher_service import TopicPublisherService
from broker.features.inspect.tail_service import TailService
from broker.features.inspect.topic_service import TopicMessageService
from broker.features.journal.service import JournalTailService


@dataclass(frozen=True, slots=True, kw_only=True)
class LookingServices:
    """They share turns, by project."""

    dead_letters: DeadLetterService
    delivery_reports: DeliveryReportService
    filters: FilterService
    lag: LagService
    consumers: ConsumerService
    backlog_messages: BacklogMessageService
    tail: TailService
    journal_tail: JournalTailService
    topic_messages: TopicMessageService
    topic_publishers: TopicPublisherService
    exports: ExportService


def make_looking(
    core: Core,
    looks: Looks,
    *,
    tails: Tails,
    records: DeliveryRecords,
    check_publisher: CheckPublisher,
    has_room: HasRoom,
) -> LookingServices:
    """The services of one process; what is much they read by `looks`, and what is new, as tails do, themselves."""
    database, clock = core.database, core.clock
    counts = TurnCounts(core.counters, "look")
    turns = ResourceTurns(at_once=LOOKING_AT_ONCE, counts=counts, has_room=has_room)
    return LookingServices(
        dead_letters=DeadLetterService(database, looks, clock, turns),
        delivery_reports=DeliveryReportService(database, clock, turns, records),
        filters=FilterService(database, looks, clock, turns),
        lag=LagService(database, looks, clock, turns, check_publisher),
        consumers=ConsumerService(database, clock),
        backlog_messages=BacklogMessageService(database, looks, clock, turns),
        tail=TailService(database, turns, tails),
        journal_tail=JournalTailService(database, turns, tails),
        topic_messages=TopicMessageService(database, looks, clock, turns),
        topic_publishers=TopicPublisherService(database, check_publisher),
        exports=ExportService(database, looks, clock, turns, tails),
    )
