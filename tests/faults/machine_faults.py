"""What happens to a machine: its disk is full, its clock steps."""

import contextlib

import psutil
import psycopg

from tests.faults.world import World

_SPARE_FILES = 3  # that it may have made ahead


class FillTheDisk:
    """The database cannot write: it refuses, or, if its log needs another file, it ends itself."""

    name = "fill the disk"

    async def inject(self, world: World) -> None:
        assert world.disk is not None
        if not world.disk.fill():
            raise psutil.NoSuchProcess(0)
        if world.dice.random() < 0.5:
            await begin_another_file(world)

    async def heal(self, world: World) -> None:
        assert world.disk is not None
        world.disk.free()


async def begin_another_file(world: World) -> None:
    """Of the database's log; there is none until one is made."""
    with contextlib.suppress(psycopg.Error):
        async with world.session() as session:
            for _ in range(_SPARE_FILES):
                await session.execute("SELECT pg_switch_wal()")
                await session.execute("SELECT txid_current()")


class StepTheClock:
    """The wall clock of a broker's processes is off, by up to ten minutes in either direction."""

    name = "step the clock"

    async def inject(self, world: World) -> None:
        assert world.clocks is not None
        self._place = world.dice.randrange(len(world.brokers))
        world.clocks.set(self._place, world.dice.choice((-1, 1)) * 10 ** world.dice.uniform(-0.5, 2.8))

    async def heal(self, world: World) -> None:
        """It steps back."""
        assert world.clocks is not None
        world.clocks.set(self._place, 0.0)
