"""The services that operators act on subscriptions and topics with (G2)."""

from dataclasses import dataclass

from broker.runtime.database_clock import DatabaseClock
from broker.runtime.next_due import NextDue
from broker.runtime.quotas import Quotas
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.schedule_ticker import ScheduleTicker
from broker.runtime.schema_checks import SchemaChecks
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.wake_ups import WakeUps
from broker.services.copies import CopyService
from broker.services.discards import DiscardService
from broker.services.edits import EditService
from broker.services.filter_changes import FilterChangeService
from broker.services.freezes import FreezeService
from broker.services.imports import ImportService
from broker.services.operations import OperationService
from broker.services.pauses import PauseService
from broker.services.publish import PublishService
from broker.services.purges import PurgeService
from broker.services.push_replays import PushReplayService
from broker.services.redrive import RedriveService
from broker.services.resends import ResendService
from broker.services.resets import ResetService
from broker.services.retractions import RetractionService
from broker.services.schedule import ScheduleService
from broker.services.schedules import SchedulesService
from broker.services.seeks import SeekService
from broker.store.driver.database import Database
from broker.store.log.attempt_ids import AttemptIds
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.state_changes import StateChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingServices:
    pauses: PauseService
    filter_changes: FilterChangeService
    freezes: FreezeService
    seeks: SeekService
    purges: PurgeService
    redrives: RedriveService
    push_replays: PushReplayService
    discards: DiscardService
    resends: ResendService
    copies: CopyService
    imports: ImportService
    edits: EditService
    resets: ResetService
    schedule: ScheduleService
    schedules: SchedulesService
    retractions: RetractionService


def make_acting(
    database: Database,
    clock: DatabaseClock,
    wake_ups: WakeUps,
    attempt_ids: AttemptIds,
    activity: SubscriptionActivity,
    quotas: Quotas,
    states: StateChanges,
    operations: OperationService,
    publish: PublishService,
    resources: ResourceCache,
    schemas: SchemaChecks,
    counters: Counters,
    next_due: NextDue,
    ticker: ScheduleTicker,
    next_tick: NextDue,
    *,
    allows_reset: bool,
) -> ActingServices:
    """The services of one process."""
    redrives = RedriveService(database, clock, operations)
    return ActingServices(
        pauses=PauseService(database, clock, wake_ups, states),
        filter_changes=FilterChangeService(database, clock, wake_ups, states, counters),
        freezes=FreezeService(database, clock, wake_ups, states),
        seeks=SeekService(database, clock, attempt_ids, wake_ups, activity, quotas, counters),
        purges=PurgeService(database, clock, wake_ups, operations, states, counters),
        redrives=redrives,
        push_replays=PushReplayService(database, clock, operations, redrives),
        edits=EditService(database, clock, wake_ups, attempt_ids, states, quotas.storage),
        discards=DiscardService(database, clock, wake_ups, attempt_ids, states, counters),
        resends=ResendService(database, clock, wake_ups, attempt_ids, states, counters),
        copies=CopyService(database, clock, operations),
        imports=ImportService(database, clock, resources, wake_ups, quotas, schemas, counters),
        resets=ResetService(database, wake_ups, states, allowed=allows_reset),
        schedule=ScheduleService(database, clock, next_due),
        schedules=SchedulesService(database, clock, ticker, next_tick),
        retractions=RetractionService(database, clock, resources, wake_ups, publish, next_due, states, counters),
    )
