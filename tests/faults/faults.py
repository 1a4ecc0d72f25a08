"""Faults, and schedules of them from a seed.

A fault breaks one thing and heals it again.  To add one: write a class with a `name`, `inject` and `heal` (see
Fault) in a module beside this one, by what it breaks (process_faults.py, database_faults.py, …), and name the class
in KINDS.  It gets the World, and takes what more it needs (a proxy, a file system) from there: `world.urls` is
where clients call, `world.database_url` where the database is.  `inject` returns when the thing is broken, `heal`
when it is whole again; both must stand that other faults are at work.  A fault that needs something in place before
the brokers start (a proxy before the database) says so: World sets it up and says that it `gives` it.  The history
names it from its begin to its end; what the checker may forgive because of it is decided there by times alone, not
by kind.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec
import psutil
import psycopg

from tests.faults import history
from tests.faults.access_faults import RotateTheKey, TakeTheRole
from tests.faults.database_faults import (
    CancelStatements,
    CrashPostgres,
    Deadlocks,
    ExhaustConnections,
    HoldVacuumBack,
    LockRowsForLong,
    StopPostgres,
    TerminateSessions,
)
from tests.faults.endpoint_faults import flapping_endpoints, hanging_endpoints, resetting_endpoints
from tests.faults.machine_faults import FillTheDisk, StepTheClock
from tests.faults.network_faults import broken_network
from tests.faults.node_faults import KillANode, KillTheCoordinator, MoveAShard, StopANode
from tests.faults.process_faults import KillABroker, KillAWorker, StopAWorker, StopAWorkerForLong
from tests.faults.version_faults import ChangeAVersion, Migrate, ReplaceAllBrokers
from tests.faults.world import World


class Fault(Protocol):
    """One injection.  `inject` and `heal` are called once each."""

    name: str

    async def inject(self, world: World) -> None: ...

    async def heal(self, world: World) -> None: ...


class Kind(msgspec.Struct, frozen=True):
    """How to make one, how often it is chosen, for how many seconds it stays, and what the World must give.

    `one_server`: why it cannot happen to a database that lies on several.
    """

    make: Callable[[], Fault]
    weight: float
    least: float
    most: float
    needs: str = ""
    delays: bool = False  # what brokers send reaches clients late
    one_server: str = ""


KINDS: dict[str, Kind] = {
    "kill a worker": Kind(KillAWorker, 4, 0, 0),
    "kill a broker": Kind(KillABroker, 2, 0, 0),
    "stop a worker": Kind(StopAWorker, 4, 0.5, 6),
    "stop a worker for long": Kind(StopAWorkerForLong, 1, 11, 16),
    "stop postgres": Kind(StopPostgres, 2, 0.5, 5, one_server="there it stops a node"),
    "crash postgres": Kind(CrashPostgres, 2, 0, 0, one_server="there it kills a node"),
    "terminate sessions": Kind(TerminateSessions, 4, 0.5, 4),
    "cancel statements": Kind(CancelStatements, 4, 1, 5),
    "lock rows for long": Kind(LockRowsForLong, 1, 9, 10),
    "deadlocks": Kind(Deadlocks, 4, 2, 6),
    "exhaust connections": Kind(ExhaustConnections, 1, 2, 6),
    "endpoints hang": Kind(hanging_endpoints, 1, 2, 12),
    "endpoints reset": Kind(resetting_endpoints, 2, 0.5, 3),
    "endpoints flap": Kind(flapping_endpoints, 2, 1, 5),
    "hold vacuum back": Kind(HoldVacuumBack, 0, 0, 0),
    "fill the disk": Kind(FillTheDisk, 3, 2, 10, needs="disk"),
    "step the clock": Kind(StepTheClock, 4, 2, 20, needs="clocks"),
    "change a version": Kind(ChangeAVersion, 5, 0, 0, needs="versions"),
    "replace all brokers": Kind(ReplaceAllBrokers, 1, 1, 6, needs="versions"),
    "rotate the key": Kind(RotateTheKey, 5, 0, 0, needs="guarded"),
    "take the role": Kind(TakeTheRole, 5, 0.5, 4, needs="guarded"),
    "migrate": Kind(Migrate, 1, 0, 0, needs="versions"),
    "kill a node": Kind(KillANode, 4, 0.2, 6, needs="citus"),
    "kill the coordinator": Kind(KillTheCoordinator, 2, 0, 3, needs="citus"),
    "stop a node": Kind(StopANode, 4, 0.5, 6, needs="citus"),
    "move a shard": Kind(MoveAShard, 6, 0, 0, needs="citus"),
}
# Of the network: how often, and how long.
_NETWORK: dict[str, tuple[float, float, float]] = {
    "cut clients": (4, 0, 0),
    "refuse clients": (2, 0.5, 4),
    "clients vanish": (2, 1, 12),
    "half-open clients": (2, 1, 12),
    "delay clients": (2, 2, 8),
    "lose answers to clients": (3, 2, 6),
    "trickle to clients": (2, 2, 6),
    "cut the database": (4, 0, 0),
    "refuse the database": (2, 0.5, 6),
    "database vanishes": (2, 2, 14),
    "half-open database": (1, 2, 14),
    "delay the database": (2, 2, 8),
    "lose answers after commit": (4, 2, 6),
}
KINDS |= {
    name: Kind(broken_network(name), *often, needs="external", delays="clients" in name)
    for name, often in _NETWORK.items()
}
HELD = "hold vacuum back"  # for the whole of a run


class Planned(msgspec.Struct, frozen=True):
    """A fault `at` so many seconds from the begin, for so many `seconds`."""

    at: float
    name: str
    seconds: float


def kinds_for(gives: Collection[str]) -> list[str]:
    """What a World that gives this can suffer."""
    return [
        name for name, kind in KINDS.items() if kind.needs in gives and not (kind.one_server and "citus" in gives)
    ]


def make_schedule(
    seed: int, seconds: float, *, names: Sequence[str], gap: tuple[float, float] = (1.0, 5.0)
) -> list[Planned]:
    """Faults for a run of so many seconds: one `gap` after another begins the next, so some overlap.

    Of a kind alone the next waits until the one before has ended.  The last are healed before the end, except where
    they take longer to heal than they stay.
    """
    dice = random.Random(f"{seed}/schedule")
    chosen = {name: KINDS[name] for name in names if KINDS[name].weight}
    schedule = [Planned(0.0, HELD, seconds)] if HELD in names else []
    at = dice.uniform(*gap)
    while chosen and at < seconds:
        [name] = dice.choices(list(chosen), [kind.weight for kind in chosen.values()])
        stays = dice.uniform(chosen[name].least, chosen[name].most)
        if at + stays <= seconds:
            schedule.append(Planned(round(at, 2), name, round(stays, 2)))
        at += dice.uniform(*gap) + (stays if len(chosen) == 1 else 0.0)
    return schedule


def names_for(seed: int, gives: Collection[str]) -> list[str]:
    """The kinds for the run of a seed: each third run has one kind alone, the others have all of them."""
    names = [name for name in kinds_for(gives) if name != HELD]
    alone = random.Random(f"{seed}/alone").choice(names)
    return [HELD, alone] if seed % 3 == 0 else [HELD, *names]


async def play(schedule: Sequence[Planned], world: World, noted: history.History, *, seconds: float) -> None:
    """Do it, note it, and return when all is well again, and not before so many seconds."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(seconds))
        for planned in schedule:
            tasks.create_task(_play_one(planned, world, noted, began))
    await world.until_ready()


async def _play_one(planned: Planned, world: World, noted: history.History, began: float) -> None:
    await asyncio.sleep(began + planned.at - time.monotonic())
    fault = KINDS[planned.name].make()
    injected_at = time.monotonic()
    outcome: history.Outcome = "ok"
    try:
        await fault.inject(world)
        await asyncio.sleep(planned.seconds)
    except (psutil.NoSuchProcess, psycopg.Error):  # another fault was there before
        outcome = "failed"
    finally:
        await fault.heal(world)
    if planned.name != HELD:
        await world.until_ready()
    noted.add(
        history.Fault(
            who="faults",
            began=injected_at,
            ended=time.monotonic(),
            outcome=outcome,
            name=planned.name,
            excuses=planned.name != HELD,
            delays=KINDS[planned.name].delays,
        )
    )
