"""Whether the database can be worked with."""

import asyncio

from broker.domain.errors import FailedPrecondition, Unavailable
from broker.runtime.retrying import retrying
from broker.store.driver.database import Database
from broker.store.schema import schema_state

READY_SECONDS = 2.0  # after which a database that does not answer counts as away


async def check_ready(database: Database) -> None:
    """Raises a BrokerError unless the database answers and its schema is one that this broker can serve."""

    async def current_revision() -> str | None:
        async with database.connection() as connection:
            return await schema_state.current_revision(connection)

    try:
        async with asyncio.timeout(READY_SECONDS):
            # A pooled connection may be one to a server that has been started again since.
            current = await retrying(current_revision, Unavailable)
    except TimeoutError:
        raise Unavailable("The database does not answer.") from None
    if reason := schema_state.why_not_served(current):
        raise FailedPrecondition(f"{reason[0].upper()}{reason[1:]}.")
