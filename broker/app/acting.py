"""The services that operators act on subscriptions and topics with (G2)."""

from dataclasses import dataclass

from broker.core.backlog.seeking.seek_service import SeekService
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation
from broker.core.resources.freeze_service import FreezeService
from broker.core.resources.pause_service import PauseService
from broker.features.dead_letters.discarding.service import DiscardService
from broker.features.dead_letters.editing.service import EditService
from broker.features.dead_letters.recovery.service import PushReplayService
from broker.features.dead_letters.redriving.service import RedriveService
from broker.features.delayed.service import ScheduleService
from broker.features.filters.change_service import FilterChangeService
from broker.features.import_export.copy_service import CopyService
from broker.features.import_export.import_service import ImportService
from broker.features.operations.service import OperationService
from broker.features.purge.service import PurgeService
from broker.features.resend.service import ResendService
from broker.features.reset.service import ResetService
from broker.features.retraction.service import RetractionService
from broker.features.schedules.service import SchedulesService
from broker.features.schedules.ticker import ScheduleTicker


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
