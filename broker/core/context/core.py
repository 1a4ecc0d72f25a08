"""The parts that nearly every part of a broker process needs."""

from dataclasses import dataclass

from broker.core.catalog.resource_cache import ResourceCache
from broker.core.context.admission import UNLIMITED, Admission
from broker.core.context.event import TellEvent, discard_event
from broker.core.context.running_processes import RunningProcesses
from broker.core.context.storage_alarm import StorageAlarm
from broker.core.context.wake_ups import WakeUps
from broker.core.process.attempt_ids import AttemptIds
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.viewing.message_views import NOTHING_MASKED, MessageViews
from broker.db.driver.database import Database
from broker.fairness.loop_turns import LoopTurns
from broker.fairness.tenants import Tenants
from broker.observability.metrics.counters import Counters
from broker.observability.state_changes import StateChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The state that the parts of one process share; broker/app/core.py builds it.

    A part takes it as its first argument if it needs three or more of these, else the one or two by name.  Its
    constructor keeps what its methods use, so that they do not go through the core.
    """

    database: Database
    clock: DatabaseClock  # the time of the database, which all parts use
    attempt_ids: AttemptIds
    tasks: Tasks  # work that outlives the call that started it
    states: StateChanges  # conditions whose beginning and end the log reports
    counters: Counters  # the counters of metrics
    tenants: Tenants  # whether more than one project uses the process
    loop_turns: LoopTurns  # turns for work that takes the event loop for long
    storage: StorageAlarm  # whether more messages can be stored
    processes: RunningProcesses
    resources: ResourceCache  # topics, subscriptions and resources of features by name
    wake_ups: WakeUps  # wakes pulls and updates caches in all processes
    admission: Admission = UNLIMITED  # limits how much projects use
    tell_event: TellEvent = discard_event  # publishes events that calls report
    views: MessageViews = NOTHING_MASKED  # what callers see of messages
