"""Processes of the broker die, or stop for a while."""

import asyncio
import contextlib

import psutil

from tests.faults.world import World


class KillAWorker:
    """SIGKILL; its parent starts it again."""

    name = "kill a worker"

    async def inject(self, world: World) -> None:
        victim = _choose(world)
        victim.kill()
        await asyncio.to_thread(psutil.wait_procs, [victim], 10)

    async def heal(self, world: World) -> None:
        """It heals by itself."""


class KillABroker:
    """SIGKILL of a whole broker; then it is started again."""

    name = "kill a broker"

    async def inject(self, world: World) -> None:
        unless_restarting(world)
        await world.kill_a_broker()

    async def heal(self, world: World) -> None:
        """It has been started again."""


class StopAWorker:
    """SIGSTOP, and SIGCONT later: what it had in hand it does then."""

    name = "stop a worker"

    def __init__(self) -> None:
        self._victim: psutil.Process | None = None

    async def inject(self, world: World) -> None:
        self._victim = _choose(world)
        self._victim.suspend()

    async def heal(self, world: World) -> None:
        if self._victim is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._victim.resume()


class StopAWorkerForLong(StopAWorker):
    """For longer than what it has out is leased."""

    name = "stop a worker for long"


def unless_restarting(world: World) -> None:
    """A start takes long: if such faults began faster than they end, no broker would ever be left alone.

    Raises psutil.NoSuchProcess.
    """
    if world.is_restarting:
        raise psutil.NoSuchProcess(0)


def _choose(world: World) -> psutil.Process:
    """Raises psutil.NoSuchProcess if they are all away."""
    workers = world.workers()
    if not workers:
        raise psutil.NoSuchProcess(0)
    return world.dice.choice(workers)
