"""Builds the parts that nearly every part of a process needs, starts them, and keeps them running."""

from collections.abc import Callable
from functools import partial

from broker.app.config import AppConfig
from broker.app.reactions import Reactions
from broker.core.catalog.resource_cache import ResourceCache
from broker.core.context.core import Core
from broker.core.context.running_processes import HEARTBEAT_SECONDS, RunningProcesses
from broker.core.context.storage_alarm import StorageAlarm
from broker.core.context.wake_ups import WakeUps
from broker.core.process.attempt_ids import AttemptIds
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.loop_watch import watch_loop
from broker.core.process.periodic import PeriodicWorker
from broker.core.process.supervisor import Loop, Worker
from broker.core.process.tasks import Tasks
from broker.db.driver.database import DATABASE, NODES, Database
from broker.fairness.loop_turns import LoopTurns
from broker.fairness.tenants import Tenants
from broker.observability.metrics.counters import Counters
from broker.observability.state_changes import TICK_SECONDS, StateChanges

CLOCK_INTERVAL_SECONDS = 30.0  # two clocks drift apart by less than 3 ms in it

MakeClock = Callable[[Database], DatabaseClock]


def make_core(
    config: AppConfig, reactions: Reactions, *, make_clock: MakeClock, counters: Counters, storage: StorageAlarm
) -> Core:
    """`reactions` are called when the core reports a change; they are connected once all parts are built."""
    states, tasks = StateChanges(), Tasks()
    database = Database(
        config.database_url,
        schema=config.database_schema,
        pool_size=config.pool_size,
        states=states,
        counters=counters,
        hot_url=config.hot_database_url,
    )
    clock = make_clock(database)
    processes = RunningProcesses(
        database,
        clock,
        changed=reactions.processes_changed,
        poll=reactions.joining,
        database_connections=config.database_connections,
        states=states,
    )
    return Core(
        database=database,
        clock=clock,
        attempt_ids=AttemptIds(),
        tasks=tasks,
        states=states,
        counters=counters,
        tenants=Tenants(),
        loop_turns=LoopTurns(),
        storage=storage,
        processes=processes,
        resources=ResourceCache(database, tasks, counters=counters),
        wake_ups=WakeUps(
            database,
            wake=reactions.messages_claimable,
            drop=reactions.resource_changed,
            is_alone=processes.is_alone,
            access_changed=reactions.access_changed,
            committed=reactions.outbox_written,
            poll=reactions.poll_heads,
        ),
    )


def database_is_away(states: StateChanges) -> bool:
    """Whether the database, or the nodes for hot statements, cannot be reached; the log has said so."""
    return states.lasts(*DATABASE) or states.lasts(*NODES)


def core_workers(core: Core) -> dict[str, Worker]:
    """The background work of the core, by the names that the log uses."""
    return {
        "notification listener": Loop(partial(core.wake_ups.run_listener, core.states)),
        "notification sender": Loop(core.wake_ups.run_sender),
        "processes": PeriodicWorker(core.processes.run_once, HEARTBEAT_SECONDS),
        "clock": PeriodicWorker(core.clock.synchronise, CLOCK_INTERVAL_SECONDS),
        "event loop": Loop(partial(watch_loop, core.counters)),
        "log": PeriodicWorker(core.states.run_once, TICK_SECONDS),
    }
