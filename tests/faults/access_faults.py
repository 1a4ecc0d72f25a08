"""An administrator changes what callers may do, and by which key, while they call."""

from tests.faults.world import World


class RotateTheKey:
    """Callers get another key, and theirs is deleted: what is open with it ends."""

    name = "rotate the key"

    async def inject(self, world: World) -> None:
        assert world.guard is not None
        await world.guard.rotate_key()

    async def heal(self, world: World) -> None:
        """They have the new one."""


class TakeTheRole:
    """Callers lose their role, and get it back."""

    name = "take the role"

    async def inject(self, world: World) -> None:
        assert world.guard is not None
        await world.guard.set_role(given=False)

    async def heal(self, world: World) -> None:
        assert world.guard is not None
        await world.guard.set_role(given=True)
