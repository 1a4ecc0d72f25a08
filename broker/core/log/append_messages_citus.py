"""Appends messages by one statement for each row, on distributed tables (docs/decisions/0055).

Citus plans INSERT … SELECT each time, and writes the messages into the text of the statements that it sends to the
node.  An INSERT … VALUES of one row is planned once, and sent with its parameters.  The sequence of each row is a
parameter, so the sequences are taken in a round trip of their own, unless the head is known (docs/decisions/0059).
Both round trips are one transaction.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.errors import DivisionByZero, SerializationFailure

from broker.core.log.known_heads import KnownHeads
from broker.db.driver import statements
from broker.db.driver.binary import OIDS, array, encode_timestamptz
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT

_APPEND_BATCH = statements.hot("append_batch")
_TAKE_EXPECTED_SEQUENCES = statements.hot("take_expected_sequences")

MOST_ROWS = 8  # for more rows one statement is cheaper
_HEADER_BYTES = 20  # of an array, before its elements
_LENGTH = struct.Struct("!i").unpack_from


async def append_messages(connection: HotConnection, batch: Sequence[Bound]) -> list[list[Any]]:
    """Takes sequences and appends a few messages, in the transaction that is open, or else in one of its own.

    The parameter `heads` of the first statement is what is known of them (None: nothing), for a transaction of its
    own.  A batch of many rows, or with other statements, is sent as it is written.
    Raises psycopg.Error; a SerializationFailure means that the head was another one, and nothing was stored.
    """
    if len(batch) > 2 or batch[0][0].file != "take_sequences" or len(batch[1][1]["lasts"]) > MOST_ROWS:
        return await connection.run(*batch, as_written=True)
    take, append = batch
    if connection.in_transaction:
        [taken] = await connection.run(take)
        if taken:
            await connection.run(*_writes(append, *taken[0]))
        return [taken, []]
    return [await _append_alone(connection, take, append), []]


async def _append_alone(connection: HotConnection, take: Bound, append: Bound) -> list[Any]:
    _, asked = take
    heads: KnownHeads = asked["heads"] or KnownHeads()
    try:
        expected = heads.expect(asked["shard_id"], asked["count"], asked["now"])
        if expected is None:
            return await _append_asking(connection, take, append, heads)
        return await _append_expecting(connection, append, *expected)
    except DivisionByZero as error:
        heads.mistaken(asked["shard_id"])
        raise SerializationFailure("somebody else has published to the shard") from error
    except psycopg.Error:
        heads.lost(asked["shard_id"])
        raise


async def _append_asking(connection: HotConnection, take: Bound, append: Bound, heads: KnownHeads) -> list[Any]:
    _, taken = await connection.run((BEGIN, {}), take)
    if not taken:
        await connection.run((COMMIT, {}))
        return taken
    [(head, publish_time)] = taken
    heads.moved(take[1]["shard_id"], take[1]["count"], head, publish_time)  # the row is locked until the commit
    await connection.run(*_writes(append, head, publish_time), (COMMIT, {}))
    return taken


async def _append_expecting(
    connection: HotConnection, append: Bound, before: int, publish_time: datetime
) -> list[Any]:
    """Appends in one round trip, so that another may follow (docs/decisions/0008).

    Returns no row if the shard is deleted with its topic: the messages are then lost, like all of the topic's, and
    are dropped with their partition.
    """
    shard_id, count = append[1]["shard_id"], append[1]["count"]
    expected = {"shard_id": shard_id, "count": count, "head": before, "publish_time": publish_time}
    writes = _writes(append, before + count, publish_time)
    taken, *_ = await connection.run((_TAKE_EXPECTED_SEQUENCES, expected), *writes)
    return taken


def _writes(append: Bound, head: int, publish_time: datetime) -> list[Bound]:
    return [(_APPEND_BATCH, row) for row in _rows(append[1], head, publish_time)]


def _rows(given: Mapping[str, Any], head: int, publish_time: datetime) -> Iterator[dict[str, Any]]:
    first = head - given["count"]
    data, attributes, shared = (_elements(given[name]) for name in ("data", "attributes", "shared_attributes"))
    keys, ttls = given["ordering_keys"], given["ttls"]
    for number, (last, count) in enumerate(zip(given["lasts"], given["counts"], strict=True)):
        key, ttl = keys[number] if keys else None, ttls[number] if ttls else None
        yield {
            "shard_id": given["shard_id"],
            "publish_time": publish_time,
            "last_seq": first + last,
            "count": count,
            "size": given["sizes"][number],
            "ordering_key": None if key is None else key.encode(),
            "attributes": array(OIDS["jsonb"], attributes[last - count : last], count) if attributes else None,
            "data": array(OIDS["bytea"], data[last - count : last], count),
            "shared_attributes": shared[number][4:] or None if shared else None,
            "expires_at": None if ttl is None else encode_timestamptz(publish_time + timedelta(microseconds=ttl)),
        }


def _elements(packed: bytes | None) -> list[bytes]:
    """Returns the elements of an array, each with its length before it; an empty list if there is no array."""
    if packed is None:
        return []
    elements, at = [], _HEADER_BYTES
    while at < len(packed):
        [length] = _LENGTH(packed, at)
        end = at + 4 + max(length, 0)
        elements.append(packed[at:end])
        at = end
    return elements
