"""Nodes of a Citus cluster die or stop, and shards move from one to the other meanwhile."""

import asyncio
import contextlib
import signal

import psutil
import psycopg

from tests.faults.database_faults import StopPostgres
from tests.faults.nodes import postmaster
from tests.faults.world import World
from tests.fixtures.citus import MOVE_SHARD, Node, Nodes

_MOVE_SECONDS = 60  # then it is given up: it waits for a node, or for a commit in doubt
_MODES = ("block_writes", "force_logical")


class KillANode:
    """An immediate shutdown of a worker; it is started again later."""

    name = "kill a node"

    def __init__(self) -> None:
        self._killed: Node | None = None

    def choose(self, world: World) -> Node:
        return world.dice.choice(_nodes(world).workers)

    async def inject(self, world: World) -> None:
        node = self.choose(world)
        victim = postmaster(node)
        self._killed = node
        victim.send_signal(signal.SIGQUIT)
        await asyncio.to_thread(psutil.wait_procs, [victim], 20)

    async def heal(self, world: World) -> None:
        if self._killed is not None:
            assert world.citus is not None
            await asyncio.to_thread(world.citus.start_again, self._killed)


class KillTheCoordinator(KillANode):
    name = "kill the coordinator"

    def choose(self, world: World) -> Node:
        return _nodes(world).coordinator


class StopANode(StopPostgres):
    """SIGSTOP of the postmaster of any node, and of its backends."""

    name = "stop a node"

    def choose(self, world: World) -> psutil.Process:
        return postmaster(world.dice.choice(_nodes(world).all))


class MoveAShard:
    """All that belongs to a shard, and what lies with it, to the other worker."""

    name = "move a shard"

    async def inject(self, world: World) -> None:
        async with world.session() as session:
            await session.execute(f"SET statement_timeout = '{_MOVE_SECONDS}s'")
            with contextlib.suppress(psycopg.Error):  # what a move left that failed
                await session.execute("CALL citus_cleanup_orphaned_resources()")
            cursor = await session.execute("SELECT shard_id FROM shards ORDER BY shard_id")
            shard_ids = [shard_id for (shard_id,) in await cursor.fetchall()]
            if not shard_ids:
                raise psutil.NoSuchProcess(0)
            chosen = [world.dice.choice(_MODES), world.dice.choice(shard_ids)]
            await session.execute(MOVE_SHARD.encode(), chosen)

    async def heal(self, world: World) -> None:
        """It lies where it lies."""


def _nodes(world: World) -> Nodes:
    assert world.citus is not None
    return world.citus.nodes
