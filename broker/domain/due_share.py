"""How one claim divides its room between redeliveries and fresh messages (docs/decisions/0060).

Where both compete for a claim each gets half of its messages and half of its bytes.  A claim of one message cannot
be halved, and one message may be larger than half of the bytes: so the turn to go first passes from one side to the
other with each such claim.  Redeliveries go out in the order in which they fell due, whatever
their ordering key.

A message that came back from a repeated delivery within RETRY_SPACING only takes the room that all others leave.
Otherwise a consumer that nacks in a tight loop would fill half of its claims with it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import merge
from math import inf

from broker.domain.delivery import Redelivery
from broker.domain.ordered_run import GivenRun, OrderedRun
from broker.domain.stretch import Stretch, count_of, size_of

RETRY_SPACING = timedelta(seconds=1)


def is_just_retried(*, attempt_number: int, delivered_at: datetime, now: datetime) -> bool:
    """Whether a due message was delivered less than RETRY_SPACING ago, and not for the first time."""
    return attempt_number > 1 and delivered_at > now - RETRY_SPACING


@dataclass(slots=True)
class DueShare:
    """The due messages that one claim may deliver.

    `passes_turn`: they competed with fresh messages, so the other side goes first next time.
    """

    runs: list[GivenRun] = field(default_factory=list)
    redeliveries: list[Redelivery] = field(default_factory=list)
    passes_turn: bool = False

    @property
    def count(self) -> int:
        return len(self.redeliveries) + sum(len(messages) for _, messages in self.runs)

    def add(self, due: OrderedRun | Redelivery, messages: Sequence[Stretch]) -> None:
        """Take these, the first of what is available of it."""
        if isinstance(due, Redelivery):
            self.redeliveries += [due] if messages else ()
        elif messages:
            self.runs.append((due, messages))


def share_of_due(
    runs: Sequence[OrderedRun],
    redeliveries: Sequence[Redelivery],
    fresh: Sequence[Stretch],
    *,
    max_messages: int,
    max_bytes: int,
    due_first: bool,
) -> DueShare:
    """Choose from runs and redeliveries, each in the order in which they go out.

    `due_first`: it is their turn to get the odd message, and one message whatever its size.
    """
    share = DueShare()
    if not runs and not (fresh and redeliveries):
        share.redeliveries += redeliveries[:max_messages]
        return share
    room = _Room(fresh, max_messages, max_bytes, due_first=due_first)
    in_order: Iterable[OrderedRun | Redelivery] = merge(runs, redeliveries, key=due_order)
    for due in in_order:
        share.passes_turn |= bool(fresh) and not due.is_just_retried
        fitting = room.take(due.available, rest_only=due.is_just_retried)
        share.add(due, fitting)
        if len(fitting) < len(due.available):
            break
    return share


def due_order(due: OrderedRun | Redelivery) -> tuple[bool, datetime]:
    """The longest due first; what was just retried behind all others."""
    return due.is_just_retried, due.next_delivery_at


class _Room:
    """The room of a claim that due messages may take: half of it, or what the fresh ones leave if that is more."""

    def __init__(self, fresh: Sequence[Stretch], max_messages: int, max_bytes: int, *, due_first: bool) -> None:
        rest_size = max_bytes - size_of(fresh) if fresh else inf
        half_size = max_bytes // 2
        if fresh and not due_first:  # the first fresh message fits beside them
            half_size = min(half_size, max_bytes - fresh[0].first(1).size)
        self._rest = max_messages - count_of(fresh), rest_size
        self._half = max(self._rest[0], (max_messages + due_first) // 2), max(rest_size, half_size)
        self._any_size = due_first
        self._count = self._size = 0

    def take(self, messages: Sequence[Stretch], *, rest_only: bool) -> list[Stretch]:
        """As many from the front as fit, in what fresh messages leave if `rest_only`."""
        max_count, max_size = self._rest if rest_only else self._half
        taken: list[Stretch] = []
        for message in messages:
            is_first = self._any_size and not self._count and not rest_only
            if self._count >= max_count or (self._size + message.size > max_size and not is_first):
                break
            taken.append(message)
            self._count, self._size = self._count + 1, self._size + message.size
        return taken
