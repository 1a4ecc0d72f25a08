"""Cuts work that would block the event loop into steps, which take turns (fairness/loop_turns.py)."""

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from broker.model.delivery import Delivery, StoredMessage

R = TypeVar("R")

# Yields the cost of each step before the step, and returns the result.
Steps = Generator[int, None, R]


class Turns(Protocol):
    """The turns of the event loop (fairness/loop_turns.py).  They are shared by `who`: a project, a connection."""

    async def run(self, who: Hashable, steps: Steps[R]) -> R:
        """Do the steps, each when its turn has come; what they return."""

    async def turn(self, who: Hashable, cost: int) -> None:
        """Wait until a step may be done, if there is anybody to wait for."""

    def waiting(self, who: Hashable) -> int:
        """Returns how many steps of `who` wait for their turn."""

    def call(self, who: Hashable, cost: int, step: Callable[[], object]) -> None:
        """Have `step` called soon, when its turn has come."""


# Costs are in bytes that are read or written, about 2 ns each.  So a step takes a millisecond or less.
STEP_COST = 400_000
LONG_BODY = 16_384  # bytes; reading a shorter body takes less time than waiting for a turn
MESSAGE_COST = 200  # of a message in an answer, besides its bytes
_data = attrgetter("data")
_MANY = 50  # messages; fewer small ones are encoded at once
_PIECE = 50  # messages of a delivery, which are measured together

Slice = list[tuple[Delivery, int, int]]  # a range of messages of a delivery


def is_long(deliveries: Sequence[Delivery]) -> bool:
    """Whether an answer with them is written in steps."""
    count = size = 0
    for delivery in deliveries:
        count += len(delivery.messages)
        if count > _MANY:
            return True
        size += sum([len(message.data) for message in delivery.messages])
    return size > STEP_COST


def cut(deliveries: Sequence[Delivery]) -> Iterator[tuple[int, Slice]]:
    """Yields what to write in a step each, with its cost: a single message may cost more than a step should."""
    part: Slice = []
    cost = 0
    for delivery in deliveries:
        for start, end, of_piece in _pieces(delivery.messages):
            if part and cost + of_piece > STEP_COST:
                yield cost, part
                part, cost = [], 0
            if part and part[-1][0] is delivery:
                part[-1] = delivery, part[-1][1], end
            else:
                part.append((delivery, start, end))
            cost += of_piece
    if part:
        yield cost, part


def _pieces(messages: Sequence[StoredMessage]) -> Iterator[tuple[int, int, int]]:
    """Yields the pieces of messages: from, to, and the cost of all messages, some, or a large one."""
    cost = MESSAGE_COST * len(messages) + sum(map(len, map(_data, messages)))
    if cost <= STEP_COST:
        yield 0, len(messages), cost
        return
    for start in range(0, len(messages), _PIECE):
        sizes = list(map(len, map(_data, messages[start : start + _PIECE])))
        cost = MESSAGE_COST * len(sizes) + sum(sizes)
        if cost <= STEP_COST:
            yield start, start + len(sizes), cost
        else:
            yield from ((n, n + 1, MESSAGE_COST + size) for n, size in enumerate(sizes, start))
