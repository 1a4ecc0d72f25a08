"""The node of each shard in a cluster, as far as this process has queried it (docs/decisions/0059).

The cached nodes may be outdated, because shards move.  Any node forwards statements for the shards of others, so
this only costs a detour.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import Statement
from broker.model.errors import BrokerError

logger = logging.getLogger(__name__)

KNOWN_SECONDS = 30.0  # after which the nodes of shards in use are queried again
_MOST = 100_000  # shards

_OWN_GROUP = Statement(b"own_group", b"SELECT groupid FROM pg_catalog.pg_dist_local_group")
_GROUPS = Statement(
    b"groups_of_shards",
    b"SELECT s.shard_id, p.groupid FROM unnest($1::int8[]) AS s (shard_id) JOIN pg_catalog.pg_dist_placement AS p"
    b" ON p.shardid = pg_catalog.get_shard_id_for_distribution_column('shards'::regclass, s.shard_id)",
    (("shard_ids", "int8[]"),),
)


async def own_group(connection: HotConnection) -> int:
    """The number of the node that a connection is to.  Raises psycopg.Error."""
    [[(group,)]] = await connection.run((_OWN_GROUP, {}))
    return int(group)


async def groups_of_shards(connection: HotConnection, shard_ids: Collection[int]) -> Mapping[int, int]:
    """Raises psycopg.Error."""
    [rows] = await connection.run((_GROUPS, {"shard_ids": list(shard_ids)}))
    return dict(rows)


class ShardNodes:
    """The nodes of shards.  It queries them by itself, never while a statement waits for the answer."""

    def __init__(self, ask: Callable[[Collection[int]], Awaitable[Mapping[int, int]]]) -> None:
        """`ask(shard_ids)`: the numbers of their nodes; it may raise a BrokerError."""
        self._ask = ask
        self._known: dict[int, tuple[int | None, float]] = {}  # with the time of the query
        self._wanted: set[int] = set()
        self._asking: asyncio.Task[None] | None = None

    def group_of(self, shard_id: int) -> int | None:
        """The number of the node; None: it is not known, yet."""
        group, asked_at = self._known.get(shard_id, (None, 0.0))
        if not asked_at or asyncio.get_running_loop().time() - asked_at > KNOWN_SECONDS:
            self._wanted.add(shard_id)
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask_wanted(), name="ask where shards lie")
        return group

    async def _ask_wanted(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, set()
                groups: Mapping[int, int] = {}
                try:
                    groups = await self._ask(wanted)
                except BrokerError as error:
                    logger.debug("where shards lie could not be asked: %s", error)
                if len(self._known) > _MOST:
                    self._known.clear()
                now = asyncio.get_running_loop().time()
                self._known |= {shard_id: (groups.get(shard_id), now) for shard_id in wanted}
        finally:
            self._asking = None

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking
