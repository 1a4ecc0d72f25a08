"""Runs find_lagging.sql on distributed tables, which no statement joins with the catalog."""

from typing import Any

from broker.db.driver import statements
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection

_FIND_LAGGING = statements.hot("find_lagging")
_LIST_NAMES = statements.hot("list_names")
_FIND_LAGGING_OF_SUBSCRIPTIONS = statements.hot("find_lagging_of_subscriptions")


@of_one_statement
async def find_lagging(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Reads the catalog first: it lacks a subscription created meanwhile, and one deleted has no backlog."""
    [named] = await connection.run((_LIST_NAMES, given))
    if not named:
        return []
    asked = {"subscription_ids": [row.subscription_id for row in named]}
    [rows] = await connection.run((_FIND_LAGGING_OF_SUBSCRIPTIONS, asked))
    lagging = {row.subscription_id for row in rows}
    return [_FIND_LAGGING.make_row((row.name, row.subscription_id in lagging)) for row in named]
