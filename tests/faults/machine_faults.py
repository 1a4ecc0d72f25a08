"""What happens to a machine: its disk is full, its clock steps."""

import psutil

from tests.faults.world import World


class FillTheDisk:
    """The database cannot write: it refuses, then it ends itself, when there is no room for its log."""

    name = "fill the disk"

    async def inject(self, world: World) -> None:
        assert world.disk is not None
        if not world.disk.fill():
            raise psutil.NoSuchProcess(0)

    async def heal(self, world: World) -> None:
        assert world.disk is not None
        world.disk.free()


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
