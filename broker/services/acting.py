"""The services that operators act on subscriptions and topics with (G2)."""

from dataclasses import dataclass

from broker.runtime.core import Core
from broker.runtime.next_due import NextDue
from broker.runtime.preparation import Preparation
from broker.runtime.schedule_ticker import ScheduleTicker
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.services.copies import CopyService
from broker.services.discards import DiscardService
from broker.services.edits import EditService
from broker.services.filter_changes import FilterChangeService
from broker.services.freezes import FreezeService
from broker.services.imports import ImportService
from broker.services.operations import OperationService
from broker.services.pauses import PauseService
from broker.services.purges import PurgeService
from broker.services.push_replays import PushReplayService
from broker.services.redrive import RedriveService
from broker.services.resends import ResendService
from broker.services.resets import ResetService
from broker.services.retractions import RetractionService
from broker.services.schedule import ScheduleService
from broker.services.schedules import SchedulesService
from broker.services.seeks import SeekService


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
    core: Core,
    *,
    activity: SubscriptionActivity,
    operations: OperationService,
    preparation: Preparation,
    next_due: NextDue,
    ticker: ScheduleTicker,
    next_tick: NextDue,
    allows_reset: bool,
) -> ActingServices:
    """The services of one process."""
    database, clock = core.database, core.clock
    redrives = RedriveService(core, operations)
    return ActingServices(
        pauses=PauseService(core),
        filter_changes=FilterChangeService(core),
        freezes=FreezeService(core),
        seeks=SeekService(core, activity),
        purges=PurgeService(core, operations),
        redrives=redrives,
        push_replays=PushReplayService(database, clock, operations, redrives),
        edits=EditService(core, preparation),
        discards=DiscardService(core),
        resends=ResendService(core),
        copies=CopyService(database, clock, operations),
        imports=ImportService(core, preparation),
        resets=ResetService(core, allowed=allows_reset),
        schedule=ScheduleService(database, clock, next_due),
        schedules=SchedulesService(database, clock, ticker, next_tick),
        retractions=RetractionService(core, preparation, next_due),
    )
