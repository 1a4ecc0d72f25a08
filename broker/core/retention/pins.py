"""The oldest publish times that may still be needed."""

from datetime import datetime

from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.named import fetch

_READ_OLDEST_PINS = statements.load("read_oldest_pins")

Pins = tuple[datetime | None, datetime | None]


async def read_oldest_pins(connection: Connection, *, now: datetime) -> Pins:
    """Returns the oldest pin of everything but delivery attempts, and that of attempts (None: nothing is pinned).

    See read_oldest_pins.sql.
    """
    [(oldest, oldest_attempt)] = await fetch(connection, _READ_OLDEST_PINS, {"now": now})
    return oldest, oldest_attempt
