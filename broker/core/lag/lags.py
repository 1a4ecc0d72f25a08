"""The lag of several subscriptions (F3), for lists of lags and alerts."""

from collections.abc import Sequence
from functools import partial

from broker.core.catalog import push_state_rows as push_states
from broker.core.lag.lag import Delivering, Lag, ShardLag, lag_of
from broker.core.lag.lag_rows import read_lag
from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.reader_rows import count_readers
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.model.subscription import Subscription

AT_A_TIME = 200  # subscriptions of one statement: some 50 ms, 1 s if all have filters that compare much


async def read_lags(
    database: Database,
    replica_reads: ReplicaReads,
    clock: DatabaseClock,
    some: Sequence[Subscription],
    *,
    late: bool = False,
) -> list[Lag]:
    """Returns the lags of at most AT_A_TIME subscriptions, without locks.  `late`: see ReplicaReads."""
    now = clock.now()
    pushed = [s.subscription_id for s in some if s.is_push]
    async with database.transaction() as connection:
        states = await push_states.read_push_states(connection, subscription_ids=pushed) if pushed else {}
        ids = [s.subscription_id for s in some]
        readers = await count_readers(connection, subscription_ids=ids, now=now)
    shards: dict[int, list[ShardLag]] = {}
    for shard in await replica_reads.read(partial(read_lag, subscriptions=some, now=now), late=late):
        shards.setdefault(shard.subscription_id, []).append(shard)
    return [
        lag_of(s, shards.get(id_, []), Delivering(states.get(id_), readers.get(id_, 0)), now)
        for s in some
        for id_ in (s.subscription_id,)
    ]
