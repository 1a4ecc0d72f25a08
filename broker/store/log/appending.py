"""Appending to several shards in a transaction that does more (G2)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from psycopg.errors import CheckViolation

from broker.domain.message import NewMessage
from broker.domain.timestamps import whole_milliseconds
from broker.domain.topic import Topic
from broker.store.driver.hot_connection import Bound, HotConnection
from broker.store.log.messages import EncodedMessages, append_statements, encode_messages, is_frozen
from broker.store.log.partitions import PartitionMissing

Batches = Mapping[int, Sequence[EncodedMessages]]  # by shard


class ShardClosed(Exception):
    """The topic was deleted or purged meanwhile; nothing has changed."""


class ShardFrozen(Exception):
    """The topic takes nothing just now; nothing has changed."""


def encode_for_shards(topic: Topic, messages: Iterable[NewMessage], shared: Iterable[str] = ()) -> Batches:
    """Messages of any ordering keys, in order, as requests of each shard.  `shared`: as of encode_messages."""
    texts = list(shared)
    of_shard: dict[int, list[tuple[NewMessage, str]]] = {}
    for number, message in enumerate(messages):
        of_message = message, texts[number] if texts else ""
        of_shard.setdefault(topic.shard_for(message), []).append(of_message)
    return {
        shard_id: [
            encode_messages([message for message, _ in run], [text for _, text in run] if texts else ())
            for run in (list(run) for _, run in groupby(pairs, lambda pair: pair[0].ordering_key))
        ]
        for shard_id, pairs in sorted(of_shard.items())
    }


async def append_to_shards(
    connection: HotConnection, *, before: Sequence[Bound] = (), batches: Batches, now: datetime
) -> dict[int, int]:
    """Append messages, and do what comes `before`, in the transaction that `connection` is in.  Returns the last
    sequence of each shard.

    Shard heads come last and by id, which is the one lock order; they are locked until the caller commits.  Raises
    ShardClosed, ShardFrozen, PartitionMissing; the transaction is of no use then.
    """
    writes = [*before]
    for shard_id, requests in sorted(batches.items()):
        writes += append_statements(shard_id, requests, whole_milliseconds(now))
    if not writes:
        return {}
    try:
        results = await connection.run(*writes)
    except CheckViolation as error:
        if is_frozen(error):
            raise ShardFrozen from error
        raise PartitionMissing from error
    taken = results[len(before) :: 2]
    if not all(taken):
        raise ShardClosed
    return {shard_id: head for shard_id, [(head, _)] in zip(sorted(batches), taken, strict=True)}
