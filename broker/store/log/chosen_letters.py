"""Dead letters of a subscription by the messages that they were, as redrives and discards choose them (G2)."""

from collections.abc import Mapping
from typing import Any

from broker.store.driver import statements
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.letters_on_nodes import read_on_nodes

_READ_LETTERS = statements.hot("read_letters")


async def read_letters(connection: HotConnection, asked: Mapping[str, Any]) -> list[Any]:
    """As read_letters.sql says."""
    if connection.is_distributed:
        return await read_on_nodes(connection, asked)
    [rows] = await connection.run((_READ_LETTERS, dict(asked)))
    return rows
