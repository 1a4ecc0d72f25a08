"""An upgrade, and the way back: brokers of two versions on one database, which is migrated under them."""

import asyncio

import psutil

from broker.db.schema import migrations
from broker.db.schema.migration_waits import Patience
from broker.db.schema.schema_state import DatabaseUnreachable
from tests.faults.process_faults import unless_restarting
from tests.faults.world import World

_PATIENCE = Patience(lock_seconds=1.0, pause_seconds=1.0, total_seconds=15.0)


class ChangeAVersion:
    """A broker stops, and one of the other version takes its place."""

    name = "change a version"

    async def inject(self, world: World) -> None:
        unless_restarting(world)
        await world.change_version(world.dice.randrange(len(world.brokers)))

    async def heal(self, world: World) -> None:
        """It serves."""


class ReplaceAllBrokers:
    """The same for each of them, one after another; and back again."""

    name = "replace all brokers"

    def __init__(self) -> None:
        self._replaced: list[int] = []

    async def inject(self, world: World) -> None:
        unless_restarting(world)
        for place in range(len(world.brokers)):
            await world.change_version(place)
            self._replaced.append(place)
            await world.until_ready()

    async def heal(self, world: World) -> None:
        for place in self._replaced:
            await world.change_version(place)
            await world.until_ready()


class Migrate:
    """To the schema of the next version; once it is there, nothing is left to do."""

    name = "migrate"

    async def inject(self, world: World) -> None:
        assert world.versions is not None
        made = world.versions.migrations
        try:
            await asyncio.to_thread(migrations.upgrade, world.database_url, directory=made, patience=_PATIENCE)
        except DatabaseUnreachable as error:  # by another fault
            raise psutil.NoSuchProcess(0) from error

    async def heal(self, world: World) -> None:
        """It is done, or was undone."""
