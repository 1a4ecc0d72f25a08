"""Runs delete_finished_attempts.sql on distributed tables, which no statement joins with the catalog."""

from collections.abc import Mapping
from typing import Any

from broker.db.driver import statements
from broker.db.driver.database import Connection

_DELETE_FINISHED_OF_OWNERS = statements.load("delete_finished_of_owners")
_READ_OWNERS = b"SELECT DISTINCT subscription_id FROM delivery_attempts"
_READ_RETAINED = b"""
    SELECT s.subscription_id, %(now)s::timestamptz - greatest(s.message_retention, t.message_retention)
    FROM subscriptions AS s LEFT JOIN topics AS t USING (topic_id)
    WHERE NOT s.detached
"""


async def delete_finished_attempts(connection: Connection, given: Mapping[str, Any]) -> list[Any]:
    """Deletes all at once, whatever the limit.

    It reads first which subscriptions have attempts: one that is created later is not taken for deleted.
    """
    owners = {id_ for (id_,) in await (await connection.execute(_READ_OWNERS)).fetchall()}
    retained = dict(await (await connection.execute(_READ_RETAINED, given)).fetchall())
    kept = [(id_, retained[id_]) for id_ in sorted(owners & retained.keys())]
    wanted = {
        "now": given["now"],
        "gone": sorted(owners - retained.keys()),
        "ids": [id_ for id_, _ in kept],
        "sinces": [since for _, since in kept],
    }
    return await (await connection.execute(_DELETE_FINISHED_OF_OWNERS, wanted)).fetchall()
