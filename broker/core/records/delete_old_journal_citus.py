"""Runs delete_old_journal.sql on distributed tables, where each statement reads one table."""

from collections.abc import Mapping
from typing import Any

from broker.db.driver.database import Connection

_COUNT_ROWS = b"SELECT subscription_id, count(*) FROM delivery_journal GROUP BY subscription_id"
_READ_KEPT = b"""
    SELECT subscription_id, %(now)s::timestamptz - coalesce(
        (settings #>> '{extensions,journal,retention}')::interval, interval '1 second' * %(kept_seconds)s::float8)
    FROM subscriptions
"""
_READ_TIME = b"""
    SELECT time FROM delivery_journal WHERE subscription_id = %(subscription_id)s
    ORDER BY time DESC OFFSET %(max_rows)s LIMIT 1
"""
_DELETE = b"""
    DELETE FROM delivery_journal
    WHERE subscription_id = ANY (%(gone)s::int8[])
       OR time <= (%(sinces)s::timestamptz[])[array_position(%(ids)s::int8[], subscription_id)]
"""


async def delete_old_journal(connection: Connection, given: Mapping[str, Any]) -> int:
    """Deletes all at once, whatever the limit.

    It reads first which subscriptions have rows: one that is created later is not taken for deleted.
    """
    counts = dict(await (await connection.execute(_COUNT_ROWS)).fetchall())
    kept = dict(await (await connection.execute(_READ_KEPT, given)).fetchall())
    ids = sorted(counts.keys() & kept.keys())
    for id_ in ids:
        if counts[id_] > given["max_rows"]:
            where = {"subscription_id": id_, "max_rows": given["max_rows"]}
            beyond = await (await connection.execute(_READ_TIME, where)).fetchall()
            kept[id_] = max([kept[id_], *(time for (time,) in beyond)])
    wanted = {"gone": sorted(counts.keys() - kept.keys()), "ids": ids, "sinces": [kept[id_] for id_ in ids]}
    return (await connection.execute(_DELETE, wanted)).rowcount
