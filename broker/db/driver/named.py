"""Runs statements that are not hot, in the form for the tables of the connection (db/driver/statements.py).

A second form that is a function takes the same connection and parameters as `fetch` or `change`, and returns the
same result.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.db.citus.engine import find_engine
from broker.db.driver.database import Connection, ResourceConnection, driver_of
from broker.db.driver.statements import Text, citus_function, citus_text


async def fetch(connection: Connection | ResourceConnection, text: Text, given: Mapping[str, Any]) -> list[Any]:
    """Returns the rows of a statement.  Raises psycopg.Error."""
    driver, run, text = await _in_form(connection, text)
    if run is not None:
        rows: list[Any] = await run(connection, given)
        return rows
    return await (await driver.execute(text, given)).fetchall()


async def change(connection: Connection | ResourceConnection, text: Text, given: Mapping[str, Any]) -> int:
    """Runs a statement that changes rows.  Returns how many.  Raises psycopg.Error."""
    driver, run, text = await _in_form(connection, text)
    if run is not None:
        count: int = await run(connection, given)
        return count
    return (await driver.execute(text, given)).rowcount


async def _in_form(
    connection: Connection | ResourceConnection, text: Text
) -> tuple[Connection, Callable[..., Awaitable[Any]] | None, Text]:
    """The connection below a resource connection, a function that runs in the statement's place, and its text."""
    driver = await driver_of(connection) if isinstance(connection, AsyncConnection) else connection
    if not (await find_engine(driver)).is_distributed:
        return driver, None, text
    return driver, citus_function(text.name, file=text.name), citus_text(text.name) or text
