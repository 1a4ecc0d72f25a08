"""Statements that go together, and what takes the rows of each: one round trip."""

from collections.abc import Callable
from typing import Any

from broker.store.driver.hot_connection import Bound, HotConnection
from broker.store.driver.loop_steps import Turn

COST = 800  # of a message that is found or taken up again, each time (runtime/loop_turns.py): some 1 µs
MANY = 50  # fewer are taken up sooner than anybody could wait for it

Take = Callable[[list[Any]], None]


class RoundTrip:
    """Filled with `add`; `run` sends it all."""

    def __init__(self) -> None:
        self._statements: list[Bound] = []
        self._takes: list[tuple[int, Take]] = []  # of the statements with these numbers
        self.messages = 0  # that are taken up one by one when there is an answer

    def __bool__(self) -> bool:
        return bool(self._statements)

    def add(self, *bound: Bound, take: Take | None = None) -> None:
        """Statements, in the order in which they run; `take` gets the rows of each."""
        if take is not None:
            numbers = range(len(self._statements), len(self._statements) + len(bound))
            self._takes += ((number, take) for number in numbers)
        self._statements += bound

    async def run(self, connection: HotConnection, turn: Turn) -> None:
        """Send them, and have the rows taken, in the same order; if they are of many messages, once they have a
        `turn`.
        """
        rows = await connection.run(*self._statements)
        if self.messages > MANY:
            await turn(COST * self.messages)
        for number, take in self._takes:
            take(rows[number])
