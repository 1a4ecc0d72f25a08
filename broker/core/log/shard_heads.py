"""Polls the heads of watched shards now and then, in case notifications are lost."""

from collections.abc import Callable, Collection

from broker.core.log.shards import read_heads
from broker.db.driver.database import Database


class ShardHeads:
    """`run_once` is a periodic worker's."""

    def __init__(
        self, database: Database, *, watched: Callable[[], Collection[int]], wake: Callable[[int], None]
    ) -> None:
        """`watched()`: the shards to look at.  `wake(shard_id)`: it has new messages."""
        self._database = database
        self._watched = watched
        self._wake = wake
        self._heads: dict[int, int] = {}  # as last polled

    async def run_once(self) -> int:
        """Returns how many shards have moved on."""
        watched = list(self._watched())
        if not watched:
            return 0
        async with self._database.at_any_node() as connection:
            heads = await read_heads(connection, shard_ids=watched)
        moved = [shard_id for shard_id, head in heads.items() if self._heads.get(shard_id) != head]
        self._heads = heads
        for shard_id in moved:
            self._wake(shard_id)
        return len(moved)
