"""Registers scheduled messages: their calls, and the worker that publishes them when they are due."""

from datetime import timedelta
from functools import partial

from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.features.delayed.publish_rule import delay_rule
from broker.features.delayed.rows import delete_scheduled_ids
from broker.features.delayed.rpcs import make_rpcs
from broker.features.delayed.scheduled_capacity import ScheduledCapacity
from broker.features.delayed.service import ScheduleService
from broker.features.delayed.worker import DueMessages
from broker.features.feature import Feature


def register(core: Core, *, next_due: NextDue, kept: timedelta, max_scheduled_messages: int) -> Feature:
    """`next_due` is told of the times of new messages.  `kept`: how long the ids of published messages are kept.
    `max_scheduled_messages` may wait in a topic.
    """
    capacity = ScheduledCapacity(core.database, max_scheduled_messages, core.processes.count)
    return Feature(
        rpcs=make_rpcs(ScheduleService(core.database, core.clock, next_due), core.views),
        workers={"due messages": DueMessages(core, next_due)},
        publish_rules=[delay_rule(core.clock, capacity)],
        clean_ups=[partial(delete_scheduled_ids, kept=kept)],
    )
