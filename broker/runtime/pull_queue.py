"""The pulls of one subscription that wait, and which of them one claim is for."""

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
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


@dataclass(eq=False, slots=True)
class PullQueue:
    """`claiming` and `alarm` are owned by the task that claims.  `changed`: since the claim in flight was begun."""

    subscription: Subscription
    pulls: deque[WaitingPull] = field(default_factory=deque)
    worth_a_look: bool = False
    claiming: bool = False
    claims: int = 0  # begun so far
    exhausted: bool = False  # the claim in flight left nothing behind that it knows of
    changed: bool = False
    alarm: asyncio.TimerHandle | None = None


def take(waiting: deque[WaitingPull]) -> list[WaitingPull]:
    """The first that wait and have one ack deadline, as many as one claim serves.

    Those who share evenly ask for no more than leaves something for every other that waits.
    """
    part = max(1, MAX_CLAIM_MESSAGES // len(waiting))
    taken: list[WaitingPull] = []
    messages = 0
    while waiting and waiting[0].terms.ack_deadline == (taken or waiting)[0].terms.ack_deadline:
        demand = waiting[0].demand
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
