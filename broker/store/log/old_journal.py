"""Deleting old rows of the journal, where they lie on nodes: as delete_old_journal.sql, in several statements.

Whose rows there are is read first, and the catalog behind that: a subscription that comes later is not gone.
"""

from collections.abc import Mapping
from typing import Any

from broker.store.driver.database import Connection

_COUNT = b"SELECT subscription_id, count(*) FROM delivery_journal GROUP BY subscription_id"
_READ_KEPT = b"""
    SELECT subscription_id, %(now)s::timestamptz - interval '1 second'
        * coalesce((extensions #>> '{journal,retention}')::float8, %(kept_seconds)s::float8)
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


async def delete_on_nodes(connection: Connection, asked: Mapping[str, Any]) -> int:
    """Returns how many."""
    counts = dict(await (await connection.execute(_COUNT)).fetchall())
    kept = dict(await (await connection.execute(_READ_KEPT, asked)).fetchall())
    ids = sorted(counts.keys() & kept.keys())
    for id_ in ids:
        if counts[id_] > asked["max_rows"]:
            where = {"subscription_id": id_, "max_rows": asked["max_rows"]}
            beyond = await (await connection.execute(_READ_TIME, where)).fetchall()
            kept[id_] = max([kept[id_], *(time for (time,) in beyond)])
    wanted = {"gone": sorted(counts.keys() - kept.keys()), "ids": ids, "sinces": [kept[id_] for id_ in ids]}
    return (await connection.execute(_DELETE, wanted)).rowcount
