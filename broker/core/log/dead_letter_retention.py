"""Keeps dead letters for a while, whether or not their topic has a subscription (G2).

Only the cursor and the attempts of a subscription record which messages it has acknowledged.  Before these or the
dead letters are deleted, the acks are copied to the rows of the dead letters.  So afterwards an unresolved row
means that its dead letter must be kept, and was lost if it does not exist.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.model.dead_letter import kept_since

_RESOLVE_ACKNOWLEDGED = statements.load("resolve_acknowledged")
_DELETE_DEAD_LETTERS = statements.load("delete_dead_letters")
_READ_LONGEST = b"SELECT max(message_retention) FROM topics"
_FIND_SHARDS = b"""
    SELECT DISTINCT shard_id, subscription_id FROM dead_letters WHERE resolution IS NULL AND publish_time < %s
"""
_FIND_OF_SHARDS = b"""
    SELECT DISTINCT shard_id, subscription_id FROM dead_letters WHERE resolution IS NULL AND shard_id = ANY (%s)
"""
_READ_FILTERS = b"""
    SELECT s.subscription_id, s.filter_path::text, s.body_path::text
    FROM subscriptions AS s
    JOIN known_shards AS h USING (topic_id)
    WHERE h.shard_id = %s AND s.filter_path IS NOT NULL
"""
_READ_EXISTING = b"SELECT subscription_id FROM subscriptions WHERE subscription_id = ANY (%s)"
_DELETE_OF_SHARDS = b"""
    DELETE FROM dead_letters WHERE shard_id = ANY (%s) RETURNING subscription_id, subscription, resolution IS NULL
"""
_RESOLVE_OF_SOURCES = b"""
    UPDATE dead_letters SET resolution = 'acknowledged' WHERE source_shard_id = ANY (%s) AND resolution IS NULL
"""
_NEVER = datetime.max.replace(tzinfo=UTC)

Lost = Mapping[str, int]  # dead letters, by the subscription that dead-lettered them


async def read_kept_since(connection: Connection, *, now: datetime) -> datetime:
    """Reads the publish time from which dead letters are kept although no subscription of their topic has them."""
    row = await (await connection.execute(_READ_LONGEST)).fetchone()
    assert row is not None
    return kept_since(row[0], now)


async def resolve_acknowledged(connection: Connection, *, before: datetime) -> None:
    """Records which dead letters, published before a time, are resolved."""
    found = await (await connection.execute(_FIND_SHARDS, [before])).fetchall()
    await _resolve(connection, found, before)


async def resolve_in_shards(connection: Connection, shard_ids: Sequence[int]) -> None:
    """Resolves all dead letters of some shards: before cursors go, in the transaction that has locked them."""
    if shard_ids:
        found = await (await connection.execute(_FIND_OF_SHARDS, [list(shard_ids)])).fetchall()
        await _resolve(connection, found, _NEVER)


async def _resolve(connection: Connection, found: Collection[Sequence[Any]], before: datetime) -> None:
    owners = {owner for _, owner in found}
    gone = sorted(owners - await _existing(connection, owners))
    for shard_id in sorted({shard_id for shard_id, _ in found}):  # one at a time: each is on one node
        filters = await (await connection.execute(_READ_FILTERS, [shard_id])).fetchall()
        wanted = {
            "shard_id": shard_id,
            "before": before,
            "gone": gone,
            "filtering": [id_ for id_, _, _ in filters],
            "filter_paths": [path for _, path, _ in filters],
            "body_paths": [path for _, _, path in filters],
        }
        await connection.execute(_RESOLVE_ACKNOWLEDGED, wanted)


async def _existing(connection: Connection, owners: Collection[int]) -> set[int]:
    rows = await (await connection.execute(_READ_EXISTING, [sorted(owners)])).fetchall()
    return {id_ for (id_,) in rows}


async def delete_dead_letter_records(
    connection: Connection, *, since: datetime, until: datetime, now: datetime, limit: int
) -> tuple[int, Lost]:
    """Deletes up to `limit` records of dead letters published within a time that are no longer in the log.

    Returns how many, and which dead letters were unresolved.
    """
    bounds = {"since": since, "until": until, "limit": limit}
    bounds["kept_since"] = await read_kept_since(connection, now=now)
    rows = await (await connection.execute(_DELETE_DEAD_LETTERS, bounds)).fetchall()
    return len(rows), await _lost(connection, rows)


async def delete_dead_letters_of_shards(connection: Connection, shard_ids: Sequence[int]) -> Lost:
    """Deletes the records of all dead letters in shards that are to be dropped.  Returns the lost dead letters.

    Dead letters elsewhere of messages in these shards can no longer be redriven, and need not be kept.
    """
    await connection.execute(_RESOLVE_OF_SOURCES, [list(shard_ids)])
    rows = await (await connection.execute(_DELETE_OF_SHARDS, [list(shard_ids)])).fetchall()
    return await _lost(connection, rows)


async def _lost(connection: Connection, rows: Sequence[Sequence[Any]]) -> Lost:
    """Counts the lost dead letters of subscriptions that still exist."""
    existing = await _existing(connection, {owner for owner, _, _ in rows})
    return Counter(name for owner, name, is_lost in rows if is_lost and owner in existing)
