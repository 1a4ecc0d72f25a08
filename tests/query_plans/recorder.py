"""A connection that remembers what was sent."""

from dataclasses import dataclass, field
from typing import Any

from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import Statement


@dataclass
class Recorder:
    """A connection that remembers the last parameters of each statement, and counts."""

    connection: HotConnection
    sent: dict[Statement, dict[str, Any]] = field(default_factory=dict)
    round_trips: int = 0
    statements: int = 0

    async def run(self, *bound: Bound) -> list[list[tuple[Any, ...]]]:
        self.sent |= dict(bound)
        self.round_trips += 1
        self.statements += len(bound)
        return await self.connection.run(*bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)
