"""The state of a claim for one target, from the lock to the commit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from broker.core.claiming.transaction.allocation import Allocation, Redelivery
from broker.core.claiming.transaction.fresh import Place
from broker.core.claiming.transaction.ordered_run import GivenRun, OrderedRun
from broker.core.claiming.transaction.request import ClaimTarget
from broker.model.due_attempt import DueAttempt
from broker.model.message_range import MessageRange


class Cursor(NamedTuple):
    """The position of a subscription: everything before (next_publish_time, next_seq) has been claimed.

    Nothing is due before `due_floor`.  `due_first`: redeliveries go first in the next claim in which they compete
    with fresh messages (core/claiming/transaction/allocation.py).
    """

    next_publish_time: datetime
    next_seq: int
    due_floor: datetime
    due_first: bool

    @property
    def position(self) -> tuple[datetime, int]:
        return self.next_publish_time, self.next_seq


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
# The cursor of a target whose messages are looked up in the round trip that locks it.
_UNKNOWN = Cursor(_LONG_AGO, 0, _LONG_AGO, due_first=True)


class PlannedAttempt(msgspec.Struct, frozen=True):
    """The messages that a request gets under one attempt id, all delivered for the n-th time (`number`).

    `run`: the row of an ordering key that is rewritten for them; without one they need a new row.  `ordered`: they
    hold their ordering key, and `returned` messages of the key wait with them.
    """

    request: int
    number: int
    ranges: Sequence[MessageRange]
    run: OrderedRun | None = None
    ordered: bool = False
    returned: int = 0
    redriven: bool = False


@dataclass(slots=True, eq=False)
class TargetAllocation:
    """The messages allocated to one target, or to several that get the same.

    For each request it has the runs of ordering keys, and an allocation of other messages.  `attempts` has the same
    messages, divided into the rows that are written for them.  `position` is where the cursor moves (None: it
    stays).  Of the fresh messages that are left, `more` can be claimed at once, or some at `until`.  `past`:
    expired messages that the cursor passes.
    """

    runs: Sequence[Sequence[GivenRun]] = ()
    allocations: Sequence[Allocation] = ()
    attempts: Sequence[PlannedAttempt] = ()
    position: tuple[datetime, int] | None = None
    more: bool = False
    until: datetime | None = None
    past: Sequence[MessageRange] = ()


@dataclass(slots=True, eq=False)
class TargetState:
    """A target whose cursor the claim has locked, with the messages that were found for it.

    `beyond`: due rows that were not read are due at this time or later (None: all were read).  `changed_meanwhile`:
    a row was acked or got a new deadline while the claim waited for its lock.  `redeliveries`: due messages that
    the log still has, in the order of their delivery; of these `redriven` came back from a dead-letter topic.
    `ready`: the runs whose next messages can be delivered, in that order too.  `passes_turn`: this claim changes
    `due_first`.
    """

    target: ClaimTarget
    place: Place
    cursor: Cursor = _UNKNOWN
    max_due_rows: int = 0
    due: list[DueAttempt] = field(default_factory=list)
    runs: list[OrderedRun] = field(default_factory=list)
    beyond: datetime | None = None
    changed_meanwhile: bool = False
    redeliveries: list[Redelivery] = field(default_factory=list)
    redriven: set[int] = field(default_factory=set)
    ready: Sequence[OrderedRun] = ()
    allocation: TargetAllocation = field(default_factory=TargetAllocation)
    passes_turn: bool = False

    @property
    def subscription_id(self) -> int:
        return self.target.subscription_id

    @property
    def is_plain(self) -> bool:
        """Whether nothing is due and no ordering key is held: targets with the same place then get the same."""
        return not (self.due or self.runs or self.target.ordered)
