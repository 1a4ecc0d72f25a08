"""Pools of connections to the nodes of a cluster, one for each node that a URL names (docs/decisions/0059).

A statement that concerns a shard is sent to the node that has the shard, where it runs at once; any other node
would forward it.  If the node is not known, or not named, any other node is used.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from broker.db.driver.connection_parameters import each_host, in_any_order
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_pool import HotPool
from broker.db.driver.shard_nodes import ShardNodes, own_group

# For so long a connection is used that was meant for a node which did not answer, and went to another one.
_ASTRAY_SECONDS = 30.0


class NodePools:
    """A node that does not answer is another's part of the work: its pool connects to the others."""

    def __init__(
        self,
        parameters: Mapping[str, Any],
        connect: Callable[[Mapping[str, Any]], Awaitable[HotConnection]],
        shard_nodes: ShardNodes,
        *,
        went: Callable[[str], None],
        came: Callable[[], None],
        **shared: Any,
    ) -> None:
        """`parameters`: for psycopg, of one host or several; `connect`: by such.  `went`, `came`, `shared` are as
        HotPool has them.
        """
        self._connect, self._shard_nodes = connect, shard_nodes
        self._pools: list[HotPool] = []
        self._groups: list[int | None] = []  # of each pool's node, once there was a connection to it
        self._pool_of: WeakKeyDictionary[HotConnection, HotPool] = WeakKeyDictionary()
        self._went, self._shared = went, {"came": came, **shared}
        for number, _ in enumerate(each_host(parameters)):
            self._add(number, in_any_order(parameters, first=number))

    def _add(self, number: int, parameters: Mapping[str, Any]) -> None:
        async def connect() -> HotConnection:
            connection = await self._connect(parameters)
            self._pool_of[connection] = pool
            if _is_to(connection, each_host(parameters)[0]):
                self._groups[number] = await own_group(connection)
            else:
                asyncio.get_running_loop().call_later(_ASTRAY_SECONDS, _retire, connection)
            return connection

        def went(why: str) -> None:
            if not any(each is not pool for each in self._near()):
                self._went(why)

        pool = HotPool(connect, went=went, **self._shared)
        self._pools.append(pool)
        self._groups.append(None)

    def _near(self) -> list[HotPool]:
        return [pool for pool in self._pools if not pool.away]

    @property
    def away(self) -> bool:
        """None of them can be reached."""
        return not self._near()

    def pool(self, shard_id: int | None, following: HotConnection | None) -> HotPool:
        """Returns the pool of `following`, or of the node that has a shard.

        Without either (several shards, or none in particular) it is the pool of any node.
        """
        if following is not None:
            return self._pool_of[following]
        if len(self._pools) == 1:
            return self._pools[0]
        group = None if shard_id is None else self._shard_nodes.group_of(shard_id)
        there = None if group is None else self._there(group) or self._there(None)
        return there or random.choice(self._near() or self._pools)  # noqa: S311

    def _there(self, group: int | None) -> HotPool | None:
        """A pool whose node is this one, or is not known yet."""
        for of, pool in zip(self._groups, self._pools, strict=True):
            if of == group and not pool.away:
                return pool
        return None

    async def close(self) -> None:
        await self._shard_nodes.close()
        for pool in self._pools:
            await pool.close()


def _is_to(connection: HotConnection, host: Mapping[str, Any]) -> bool:
    reached, port = connection.address
    return reached == (host.get("host") or host.get("hostaddr") or reached) and port == str(host.get("port", port))


def _retire(connection: HotConnection) -> None:
    connection.bulky = True  # not worth keeping
