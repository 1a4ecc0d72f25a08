"""What nearly every part of a broker process needs."""

from dataclasses import dataclass

from broker.runtime.database_clock import DatabaseClock
from broker.runtime.loop_turns import LoopTurns
from broker.runtime.quotas import Quotas
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.running_processes import RunningProcesses
from broker.runtime.storage_alarm import StorageAlarm
from broker.runtime.tasks import Tasks
from broker.runtime.tenants import Tenants
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.database import Database
from broker.store.log.attempt_ids import AttemptIds
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.state_changes import StateChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The state that the parts of one process share; broker/app/core.py builds it.

    A part takes it as its first argument if it needs three or more of these, else the one or two by name.  Its
    constructor keeps what its methods use, so that they do not go through the core.
    """

    database: Database
    clock: DatabaseClock  # the time of the database: parts ask nothing else for the time
    attempt_ids: AttemptIds
    tasks: Tasks  # work that outlives the call that started it
    states: StateChanges  # what the log reports as it begins and ends
    counters: Counters  # what metrics are made of
    tenants: Tenants  # whether more than one project uses the process
    loop_turns: LoopTurns  # turns for work that takes the event loop for long
    storage: StorageAlarm  # whether there is room for more messages
    processes: RunningProcesses
    quotas: Quotas
    resources: ResourceCache  # topics, subscriptions and schemas by name
    wake_ups: WakeUps  # tells pulls of new messages, and caches of changed resources, in all processes
