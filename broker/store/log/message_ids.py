"""Finds messages by what their ids are made of, and the other way round."""

from collections.abc import Collection, Sequence

from broker.domain.message_id import FIRST_ID_SEQ
from broker.store.driver import statements
from broker.store.driver.by_shard import run_by_shard
from broker.store.driver.hot_connection import HotConnection

_READ_SCHEDULED_ID = statements.hot("read_scheduled_id")
_READ_ID_SEQS = statements.hot("read_id_seqs")


async def sequence_of(connection: HotConnection, *, shard_id: int, id_seq: int) -> int | None:
    """Where the message with this id stands in its shard: an id is made of the sequence, or it came later.

    None: it has not come, never will, or is in the log no more.
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
    """What the ids of the messages at these shards and sequences are made of; without any, nothing is asked."""
    if not sequences:
        return {}
    shard_ids, seqs = map(list, zip(*sequences, strict=True))
    asked = {"shard_ids": shard_ids, "seqs": seqs}
    rows = await run_by_shard(connection, _READ_ID_SEQS, asked)
    return {each: each[1] for each in sequences} | {(row.shard_id, row.seq): row.id_seq for row in rows}
