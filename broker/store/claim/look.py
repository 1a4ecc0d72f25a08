"""Statements that look, and what takes the rows of each: one round trip."""

from collections.abc import Callable
from typing import Any

from broker.store.driver.hot_connection import Bound, HotConnection


class Look:
    """Filled with `add`; `run` sends it all."""

    def __init__(self) -> None:
        self._statements: list[Bound] = []
        self._takes: list[Callable[[list[Any]], None]] = []

    def __bool__(self) -> bool:
        return bool(self._statements)

    def add(self, statement: Bound, take: Callable[[list[Any]], None]) -> None:
        self._statements.append(statement)
        self._takes.append(take)

    async def run(self, connection: HotConnection, *before: Bound) -> list[list[Any]]:
        """Send what goes before, and the look behind it; returns the rows of the former."""
        rows = await connection.run(*before, *self._statements)
        for take, of_statement in zip(self._takes, rows[len(before) :], strict=True):
            take(of_statement)
        return rows[: len(before)]
