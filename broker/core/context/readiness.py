"""Whether the process can use the database."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from broker.core.context.storage_alarm import StorageAlarm
from broker.core.process.retrying import retrying
from broker.db.driver.database import Database
from broker.db.schema import schema_state
from broker.model.errors import FailedPrecondition, Unavailable
from broker.observability.log import reason
from broker.observability.state_changes import StateChanges

WhileAway = Callable[[], AbstractAsyncContextManager[None]]

READY_SECONDS = 2.0  # after which a database that does not answer counts as away
AWAY_SECONDS = 0.2  # between two attempts to reach it at the start


async def check_ready(database: Database, storage: StorageAlarm | None = None) -> None:
    """Raises a BrokerError unless a publish, a pull and an ack would find a database that they can use.

    Each pool has a connection, and the schema is one that this broker can serve.
    """

    if storage is not None and (error := storage.unavailable()) is not None:
        raise error  # it is more specific than a refused connection

    async def current_revision() -> str | None:
        await database.check_hot()
        async with database.connection() as connection:
            return await schema_state.current_revision(connection)

    try:
        async with asyncio.timeout(READY_SECONDS):
            # A pooled connection may be to a server that has been restarted since.
            current = await retrying(current_revision, Unavailable)
    except TimeoutError:
        raise Unavailable("The database does not answer.") from None
    if database.nodes_are_away:
        raise Unavailable("None of the nodes for hot statements can be reached.")
    if why := schema_state.why_not_served(current):
        raise FailedPrecondition(f"{why[0].upper()}{why[1:]}.")


async def begin_when_there(
    begin: Callable[[], Awaitable[None]], database: Database, states: StateChanges, while_away: WhileAway
) -> None:
    """`begin`, until the database answers: a process that ended instead would only be started again.

    `while_away()` is entered for as long as it does not.
    """
    try:
        await begin()
    except Unavailable as error:
        database.went_away(reason(error))
    else:
        return
    async with while_away():
        while True:
            await asyncio.sleep(AWAY_SECONDS)
            states.tick()
            with contextlib.suppress(Unavailable):
                await begin()
                break
    database.came_back()
