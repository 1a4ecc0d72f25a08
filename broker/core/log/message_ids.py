"""Computes the ids of messages, and locates the message with an id in the log."""

from collections.abc import Collection, Sequence

from broker.core.log.messages import Appended, EncodedMessages, Stored
from broker.db.driver import statements
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.hot_connection import HotConnection
from broker.model.message_id import FIRST_ID_SEQ

_READ_SCHEDULED_ID = statements.hot("read_scheduled_id")
_READ_ID_SEQS = statements.hot("read_id_seqs")


async def sequence_of(connection: HotConnection, *, shard_id: int, id_seq: int) -> int | None:
    """Returns the sequence of the message with this id in its shard.

    An id is made of the sequence, or of a number that a scheduled message was given.  None: the message has not
    been published yet, never will be, or is no longer in the log.
    """
    if id_seq <= FIRST_ID_SEQ:
        return id_seq
    [rows] = await connection.run((_READ_SCHEDULED_ID, {"shard_id": shard_id, "id_seq": id_seq}))
    return rows[0].seq if rows else None


async def located(connection: HotConnection, ids: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Shards and sequences of the messages with these ids; an id of what the log has not stays as it is."""
    found = []
    for shard_id, id_seq in ids:
        seq = await sequence_of(connection, shard_id=shard_id, id_seq=id_seq)
        found.append((shard_id, id_seq if seq is None else seq))
    return found


async def id_seqs_at(
    connection: HotConnection, sequences: Collection[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Returns the numbers that the ids of the messages at these shards and sequences are made of.

    Without any, no query is made.
    """
    if not sequences:
        return {}
    shard_ids, seqs = map(list, zip(*sequences, strict=True))
    asked = {"shard_ids": shard_ids, "seqs": seqs}
    rows = await run_by_shard(connection, _READ_ID_SEQS, asked)
    return {each: each[1] for each in sequences} | {(row.shard_id, row.seq): row.id_seq for row in rows}


def id_seqs_of(batch: EncodedMessages, answer: Appended | Stored) -> Sequence[int]:
    """Returns the numbers that the ids of a request's messages are made of, once they are stored."""
    if isinstance(answer, Stored):
        return answer.id_seqs
    return id_seqs_from(batch, answer.first_seq, answer.first_id_seq)


def id_seqs_from(batch: EncodedMessages, first_seq: int, first_id_seq: int) -> list[int]:
    """Return what ids are made of, from the first sequence and, of messages that come later, the first number."""
    if batch.scheduled is None:
        return list(range(first_seq, first_seq + batch.count))
    return [first_seq + rank - 1 if rank > 0 else first_id_seq - rank - 1 for rank in ranks_of(batch)]


def ranks_of(batch: EncodedMessages) -> Sequence[int]:
    """Return the rank of each message: 1, 2, … by sequence, or -1, -2, … by number for those that come later."""
    if batch.scheduled is None:
        return range(1, batch.count + 1)
    later = {index: -number for number, index in enumerate(batch.scheduled.indexes, 1)}
    at_once = iter(range(1, batch.count + 1))
    return [
        later[index] if index in later else next(at_once) for index in range(batch.count + batch.scheduled.count)
    ]
