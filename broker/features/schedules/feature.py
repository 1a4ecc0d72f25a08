"""Registers schedules: their calls, and the worker that runs their ticks."""

from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_rights import CheckPublisher
from broker.features.feature import Feature
from broker.features.schedules.rpcs import make_rpcs
from broker.features.schedules.service import SchedulesService
from broker.features.schedules.ticker import ScheduleTicker
from broker.features.schedules.worker import ScheduleWorker


def register(
    core: Core, *, preparation: Preparation, next_due: NextDue, check_publisher: CheckPublisher
) -> Feature:
    """`next_due` receives the times at which delayed messages are due."""
    next_tick = NextDue()
    ticker = ScheduleTicker(core, preparation, next_due, check_publisher)
    return Feature(
        rpcs=make_rpcs(SchedulesService(core.database, core.clock, ticker, next_tick), core.views),
        workers={"schedules": ScheduleWorker(core, ticker, next_tick)},
    )
