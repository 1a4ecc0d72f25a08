"""Acks and deadline changes of a shard that wait to be written together (core/acking/ack_coalescer.py)."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from broker.model.ack_id import AttemptName, MessageNames
from broker.model.deadline_change import AttemptStatus
from broker.model.journal import Attribution
from broker.model.retry_policy import RetryPolicy

# The authors of acks: for each attempt the ordinals that each author acknowledged.
AckAttributions = dict[AttemptName, list[tuple[set[int], Attribution]]]


@dataclass(frozen=True, slots=True)
class NewDeadline:
    """Seconds from now, and what becomes of the messages till then (see DeadlineChange)."""

    seconds: float
    status: AttemptStatus = "delivering"
    retry_policy: RetryPolicy | None = None
    exactly_once: bool = False
    failure: str | None = None
    attribution: Attribution | None = None


@dataclass(frozen=True, slots=True)
class RefusedAcks:
    """Acks that changed nothing: stale ones, and those that came before their turn in an ordering key."""

    stale: Mapping[AttemptName, set[int]] = field(default_factory=dict)
    out_of_order: Mapping[AttemptName, set[int]] = field(default_factory=dict)

    def of(self, acks: Mapping[AttemptName, set[int]]) -> "RefusedAcks":
        """Returns those of the refused acks that are among `acks`."""
        return RefusedAcks(own(acks, self.stale), own(acks, self.out_of_order))

    @staticmethod
    def joined(refused: "Iterable[RefusedAcks]") -> "RefusedAcks":
        """Returns the refused acks of several shards as one."""
        stale: dict[AttemptName, set[int]] = {}
        out_of_order: dict[AttemptName, set[int]] = {}
        for each in refused:
            stale |= each.stale
            out_of_order |= each.out_of_order
        return RefusedAcks(stale, out_of_order)

    def __bool__(self) -> bool:
        return bool(self.stale or self.out_of_order)


@dataclass(slots=True)
class Batch:
    """`done` gives the acks that were refused, and the messages whose deadline change was stale.  `attribution`:
    who asked for the acks; `journaled`: some of them are written in a journal.
    """

    done: asyncio.Future[tuple[RefusedAcks, MessageNames]]
    acks: MessageNames = field(default_factory=dict)
    exactly_once_acks: MessageNames = field(default_factory=dict)
    acks_in_order: MessageNames = field(default_factory=dict)
    exactly_once: set[int] = field(default_factory=set)  # subscriptions
    deadlines: dict[AttemptName, dict[int, NewDeadline]] = field(default_factory=dict)
    attribution: AckAttributions = field(default_factory=dict)
    journaled: bool = False

    def fail(self, error: BaseException) -> None:
        self.done.set_exception(error)
        self.done.exception()  # every caller may be gone

    def change(self, attempt: AttemptName, ordinals: Iterable[int], deadline: NewDeadline) -> None:
        """Adds new deadlines.  The last one replaces earlier ones, except that a nacked message is not extended."""
        known = self.deadlines.setdefault(attempt, {})
        if known and deadline.status == "delivering":
            given_up = [each for each in ordinals if each in known and known[each].status != "delivering"]
            ordinals = set(ordinals).difference(given_up)
        known.update(dict.fromkeys(ordinals, deadline))

    def ack(self, attempt: AttemptName, ordinals: set[int], *, exactly_once: bool) -> None:
        """Adds acks.  The ordinals are not copied, and must not change: their caller has them, too."""
        of_plain = self.exactly_once_acks if exactly_once else self.acks
        acks = self.acks_in_order if attempt.ordered else of_plain
        known = acks.get(attempt)
        acks[attempt] = ordinals if known is None else known | ordinals

    def acked(self, out_of_order: Mapping[AttemptName, set[int]]) -> Iterator[MessageNames]:
        """Yields the messages that are acked once the batch is written."""
        yield self.acks
        yield self.exactly_once_acks
        yield {a: ordinals - out_of_order.get(a, set()) for a, ordinals in self.acks_in_order.items()}

    def nacked(self) -> Iterator[MessageNames]:
        """Returns the messages that are nacked once the batch is written."""
        yield {
            attempt: nacked
            for attempt, deadlines in self.deadlines.items()
            if (nacked := {ordinal for ordinal, new in deadlines.items() if new.status != "delivering"})
        }

    def not_acked(self) -> Mapping[AttemptName, Mapping[int, NewDeadline]]:
        """The new deadlines that count: an ack wins."""
        kinds = (self.acks, self.exactly_once_acks, self.acks_in_order)
        if not self.deadlines or kinds == ({}, {}, {}):
            return self.deadlines
        left = {}
        for attempt, deadlines in self.deadlines.items():
            acked = set[int]().union(*(acks.get(attempt, ()) for acks in kinds))
            left[attempt] = {each: new for each, new in deadlines.items() if each not in acked}
        return left


def own(
    asked: Mapping[AttemptName, set[int]], stale: Mapping[AttemptName, set[int]]
) -> Mapping[AttemptName, set[int]]:
    """The part of what a whole batch missed that one caller asked for."""
    if not stale:
        return {}
    mine = {attempt: ordinals & stale.get(attempt, set()) for attempt, ordinals in asked.items()}
    return {attempt: ordinals for attempt, ordinals in mine.items() if ordinals}
