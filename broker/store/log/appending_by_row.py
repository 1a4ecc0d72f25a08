"""Appending a statement for each row, where shards lie on nodes (docs/decisions/0055).

Citus plans INSERT … SELECT anew each time, and writes the messages into the text of what it sends to the node.
INSERT … VALUES of one row is planned once, and sent with its parameters.  So the sequences are taken in a round
trip of their own, for each row says its own; all is one transaction still.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.store.driver import statements
from broker.store.driver.binary import OIDS, array, encode_timestamptz
from broker.store.driver.hot_connection import Bound, HotConnection
from broker.store.driver.statements import BEGIN, COMMIT

_APPEND_BATCH = statements.hot("append_batch")

MOST_ROWS = 8  # from which on one statement for all is cheaper
_HEADER_BYTES = 20  # of an array, before its elements
_LENGTH = struct.Struct("!i").unpack_from


async def append_by_row(connection: HotConnection, take: Bound, append: Bound) -> list[Any]:
    """Run what append_statements has made, in the transaction that there is, or one of its own.

    Returns what `take` does: a row, or none if the shard is closed.  Raises psycopg.Error; an OperationalError
    means that the outcome is unknown.
    """
    is_own = not connection.in_transaction
    *_, taken = await connection.run(*([(BEGIN, {})] if is_own else []), take)
    writes: Sequence[Bound] = ()
    if taken:
        [(head, publish_time)] = taken
        writes = [(_APPEND_BATCH, row) for row in _rows(append[1], head, publish_time)]
    if is_own or writes:
        await connection.run(*writes, *([(COMMIT, {})] if is_own else []))
    return taken


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
    """Of an array, each with its length before it; none if there is no array."""
    if packed is None:
        return []
    elements, at = [], _HEADER_BYTES
    while at < len(packed):
        [length] = _LENGTH(packed, at)
        end = at + 4 + max(length, 0)
        elements.append(packed[at:end])
        at = end
    return elements
