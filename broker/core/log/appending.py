"""Appends to the logs of topics in a transaction that has other statements as well (G2)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.errors import CheckViolation

from broker.core.log.messages import (
    Appended,
    EncodedMessages,
    Stored,
    append_of,
    append_statements,
    appended_each,
    is_frozen,
    schedule_statements,
)
from broker.core.log.partitions import PartitionMissing
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.model.timestamps import whole_milliseconds

Batches = Mapping[int, Sequence[EncodedMessages]]  # by shard
Answers = Mapping[int, Sequence[Appended | Stored]]  # by shard: the result of each batch


class ShardClosed(Exception):
    """The topic was deleted or purged meanwhile; nothing has changed."""


class ShardFrozen(Exception):
    """The topic takes nothing just now; nothing has changed."""


async def append_to_shards(
    connection: HotConnection, *, before: Sequence[Bound] = (), batches: Batches, now: datetime
) -> Answers:
    """Append messages, and do what comes `before`, in the transaction that `connection` is in.

    Messages that are not due yet are put among those that wait, and repeats are left out.  Shard heads come last
    and by id, which is the one lock order; they are locked until the caller commits.  Raises ShardClosed,
    ShardFrozen, PartitionMissing; the transaction is of no use then.
    """
    now = whole_milliseconds(now)
    writes = [*before]
    takes: dict[int, tuple[int, int | None]] = {}  # by shard: the statements that return the positions of messages
    answers: dict[int, Sequence[Appended | Stored]] = {}
    for shard_id, requests in sorted(batches.items()):
        if (append_identified := append_of(requests)) is not None:
            if writes:
                _read_answers(await _run(connection, writes), batches, takes, answers)
                writes, takes = [], {}
            stored = await append_identified(connection, shard_id=shard_id, requests=requests, now=now)
            if stored is None:
                raise ShardClosed
            answers[shard_id] = stored
            continue
        take = len(writes)
        writes += append_statements(shard_id, requests, now)
        later = [request.scheduled for request in requests if request.scheduled is not None]
        takes[shard_id] = take, len(writes) if later else None
        writes += schedule_statements(shard_id, later, now) if later else ()
    if writes:
        _read_answers(await _run(connection, writes), batches, takes, answers)
    return answers


async def _run(connection: HotConnection, writes: Sequence[Bound]) -> Sequence[Sequence[Any]]:
    try:
        return await connection.run(*writes)
    except CheckViolation as error:
        if is_frozen(error):
            raise ShardFrozen from error
        raise PartitionMissing from error


def _read_answers(
    results: Sequence[Sequence[Any]],
    batches: Batches,
    takes: Mapping[int, tuple[int, int | None]],
    answers: dict[int, Sequence[Appended | Stored]],
) -> None:
    """Raises ShardClosed."""
    for shard_id, (take, take_later) in takes.items():
        requests = batches[shard_id]
        if not results[take] or (take_later is not None and not results[take_later]):
            raise ShardClosed
        [(head, publish_time)] = results[take]
        first_seq = head - sum(request.count for request in requests) + 1
        first_id_seq = 0
        if take_later is not None:
            [(last_id_seq,)] = results[take_later]
            later = sum(request.scheduled.count for request in requests if request.scheduled is not None)
            first_id_seq = last_id_seq - later + 1
        answers[shard_id] = appended_each(Appended(first_seq, publish_time, first_id_seq), requests)
