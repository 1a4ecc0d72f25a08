"""The publish rule of scheduled messages."""

from functools import partial

from broker.core.process.database_clock import DatabaseClock
from broker.core.publishing.publish_rule import Draft, PublishRule
from broker.core.publishing.publishing_rules import Rule
from broker.features.delayed.delay import due_times
from broker.features.delayed.scheduled_capacity import ScheduledCapacity
from broker.model.publish_property import PublishProperty


def delay_rule(clock: DatabaseClock, available: ScheduledCapacity) -> PublishRule:
    """Let messages wait until they are due; they take waiting room where the entry point can refuse them."""

    async def delay(draft: Draft, _: Rule) -> None:
        due_ats = due_times(draft.packing.messages, clock.now())
        if due_ats is None:
            return
        draft.packing.due_ats = due_ats
        if draft.rules.scheduled_capacity is Rule.APPLIES:
            draft.reservations.append(partial(available.take, draft.topic, len(due_ats) - due_ats.count(None)))

    return PublishRule(PublishProperty.DELAY, delay)
