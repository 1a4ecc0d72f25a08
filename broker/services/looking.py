"""The services that only read what may be much: messages, and where subscriptions stand (F3)."""

from dataclasses import dataclass

from broker.runtime.core import Core
from broker.runtime.delivery_records import DeliveryRecords
from broker.runtime.looks import Looks
from broker.runtime.publish_rights import CheckPublisher
from broker.runtime.resource_turns import LOOKING_AT_ONCE, HasRoom, ResourceTurns
from broker.runtime.tails import Tails
from broker.runtime.turn_counts import TurnCounts
from broker.services.backlog_messages import BacklogMessageService
from broker.services.consumers import ConsumerService
from broker.services.dead_letters import DeadLetterService
from broker.services.delivery_reports import DeliveryReportService
from broker.services.exports import ExportService
from broker.services.filters import FilterService
from broker.services.journal_tail import JournalTailService
from broker.services.lag import LagService
from broker.services.tail import TailService
from broker.services.topic_messages import TopicMessageService
from broker.services.topic_publishers import TopicPublisherService


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
