"""A connection that remembers what was sent."""

from dataclasses import dataclass, field
from typing import Any

from broker.db.driver.forms import run_in_forms
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import Statement


@dataclass
class Recorder:
    """A connection that remembers the last parameters of each statement, and counts."""

    connection: HotConnection
    sent: dict[Statement, dict[str, Any]] = field(default_factory=dict)
    round_trips: int = 0
    every: list[Bound] = field(default_factory=list)

    async def run(self, *bound: Bound, as_written: bool = False) -> list[list[tuple[Any, ...]]]:
        if self.is_distributed and not as_written:
            return await run_in_forms(self, bound)
        self.sent |= dict(bound)
        self.round_trips += 1
        self.every += bound
        return await self.connection.run(*bound, as_written=True)

    @property
    def statements(self) -> int:
        return len(self.every)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)
