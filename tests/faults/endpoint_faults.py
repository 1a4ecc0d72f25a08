"""Push endpoints hang, reset connections, or flap."""

import psutil

from tests.faults.clients.endpoints import Mood
from tests.faults.world import World


class EndpointsAil:
    """All endpoints of the workload are in a mood."""

    def __init__(self, name: str, mood: Mood) -> None:
        self.name = name
        self._mood: Mood = mood
        self._began = False

    async def inject(self, world: World) -> None:
        if world.endpoints is None:
            raise psutil.NoSuchProcess(0)
        world.endpoints.begin(self._mood)
        self._began = True

    async def heal(self, world: World) -> None:
        if self._began and world.endpoints is not None:
            world.endpoints.end(self._mood)


def hanging_endpoints() -> EndpointsAil:
    return EndpointsAil("endpoints hang", "hang")


def resetting_endpoints() -> EndpointsAil:
    return EndpointsAil("endpoints reset", "reset")


def flapping_endpoints() -> EndpointsAil:
    return EndpointsAil("endpoints flap", "flap")
