"""The pulls of one subscription that wait, and which of them one claim is for."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from broker.domain.delivery import Delivery, Demand
from broker.domain.subscription import Subscription

MAX_CLAIM_MESSAGES = 4_000  # one claim serves so many messages at most; the pulls beyond wait for the next
MAX_CLAIM_BYTES = 64_000_000  # which the pulls of a claim share, unless a single message is larger


@dataclass(eq=False, slots=True)
class PullTerms:
    """`ack_deadline` None: the subscription's; it may change while the pull waits.  `owner` gets the ordering keys
    that it had before rather than others (A6).
    """

    ack_deadline: timedelta | None = None
    owner: Hashable | None = None


PLAIN_TERMS = PullTerms()


@dataclass(eq=False, slots=True)
class WaitingPull:
    """One of a queue's."""

    demand: Demand
    wait: bool
    # True once deliveries are set or the pull was told to look elsewhere; False when it is parked
    answer: asyncio.Future[list[Delivery]]
    parked: asyncio.Future[None]
    joined: int  # the number of the queue's claim that was the last when it joined
    terms: PullTerms = PLAIN_TERMS

    def fail(self, error: BaseException) -> None:
        """Unless it is answered already."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # its caller may be gone


class Line:
    """Pulls in the order in which they are served.  Any may leave, at the same cost: thousands do so together."""

    def __init__(self, pulls: Iterable[WaitingPull] = ()) -> None:
        self._pulls = OrderedDict[WaitingPull, None].fromkeys(pulls)

    def __len__(self) -> int:
        return len(self._pulls)

    def __iter__(self) -> Iterator[WaitingPull]:
        return iter(self._pulls)

    @property
    def first(self) -> WaitingPull:
        return next(iter(self._pulls))

    @property
    def last(self) -> WaitingPull:
        return next(reversed(self._pulls))

    def append(self, pull: WaitingPull) -> None:
        self._pulls[pull] = None

    def extend(self, pulls: Iterable[WaitingPull]) -> None:
        for pull in pulls:
            self._pulls[pull] = None

    def put_back(self, pulls: Iterable[WaitingPull]) -> None:
        """Before all others; the last of `pulls` comes first."""
        for pull in pulls:
            self._pulls[pull] = None
            self._pulls.move_to_end(pull, last=False)

    def pop(self) -> WaitingPull:
        return self._pulls.popitem()[0]

    def popleft(self) -> WaitingPull:
        return self._pulls.popitem(last=False)[0]

    def leave(self, pull: WaitingPull) -> bool:
        """Returns whether it stood here."""
        if pull in self._pulls:
            del self._pulls[pull]
            return True
        return False

    def clear(self) -> None:
        self._pulls.clear()


@dataclass(eq=False, slots=True)
class PullQueue:
    """`claiming` and `alarm` are owned by the task that claims.  `changed`: since the claim in flight was begun."""

    subscription: Subscription
    pulls: Line = field(default_factory=Line)
    worth_a_look: bool = False
    claiming: bool = False
    claims: int = 0  # begun so far
    exhausted: bool = False  # the claim in flight left nothing behind that it knows of
    changed: bool = False
    alarm: asyncio.TimerHandle | None = None


def take(waiting: Line) -> list[WaitingPull]:
    """The first that wait and have one ack deadline, as many as one claim serves.

    Those who share evenly ask for no more than leaves something for every other that waits.
    """
    part = max(1, MAX_CLAIM_MESSAGES // len(waiting))
    taken: list[WaitingPull] = []
    messages = 0
    ack_deadline = waiting.first.terms.ack_deadline
    while waiting and waiting.first.terms.ack_deadline == ack_deadline:
        demand = waiting.first.demand
        messages += min(demand.max_messages, part) if demand.evenly else demand.max_messages
        if taken and messages > MAX_CLAIM_MESSAGES:
            break
        taken.append(waiting.popleft())
    return taken


def demands_of(pulls: Sequence[WaitingPull]) -> list[Demand]:
    """What one claim is asked for, so that all get something: equal parts of the bytes, and of the messages for
    those who share evenly.
    """
    max_bytes = MAX_CLAIM_BYTES // len(pulls)
    part = max(1, MAX_CLAIM_MESSAGES // len(pulls))
    return [pull.demand.within(part if pull.demand.evenly else None, max_bytes) for pull in pulls]
