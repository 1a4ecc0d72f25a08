"""What a claim has in hand for one claimant, from the lock to the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

import msgspec

from broker.domain.delivery import Redelivery, Share
from broker.domain.ordered_run import GivenRun, OrderedRun
from broker.domain.stretch import Stretch
from broker.store.claim.fresh import Place
from broker.store.claim.request import Claimant
from broker.store.log.due_attempt import DueAttempt, due_floor_after


class Cursor(NamedTuple):
    """Where a subscription stands: everything before (next_publish_time, next_seq) has been claimed.

    Nothing is due before `due_floor`.  `due_first`: redeliveries go first in the next claim in which they compete
    with fresh messages (domain/due_share.py).
    """

    next_publish_time: datetime
    next_seq: int
    due_floor: datetime
    due_first: bool

    @property
    def position(self) -> tuple[datetime, int]:
        return self.next_publish_time, self.next_seq


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
# Of a claimant that is looked for in the round trip that locks its cursor.
UNKNOWN = Cursor(_LONG_AGO, 0, _LONG_AGO, due_first=True)


class Parcel(msgspec.Struct, frozen=True):
    """What a demand gets under one attempt id: messages for the n-th time (`number`).

    `run`: the row that they go out under; without one they need a row.  `ordered`: they hold a key; `returned`
    messages of that wait with them.
    """

    demand: int
    number: int
    stretches: Sequence[Stretch]
    run: OrderedRun | None = None
    ordered: bool = False
    returned: int = 0
    redriven: bool = False


@dataclass(slots=True, eq=False)
class Portion:
    """What one claimant gets, or several that are alike: for each demand keys' runs, and a share.

    As `parcels` it is cut up for the rows that it goes out under.  `position` is where the cursor goes (None: it
    stays).  Of the fresh messages that are left `more` may go at once, or some at `until`.  Those that are `past`
    their time it has passed.
    """

    runs: Sequence[Sequence[GivenRun]] = ()
    shares: Sequence[Share] = ()
    parcels: Sequence[Parcel] = ()
    position: tuple[datetime, int] | None = None
    more: bool = False
    until: datetime | None = None
    past: Sequence[Stretch] = ()

    @property
    def stretches(self) -> Iterator[Stretch]:
        yield from (stretch for share in self.shares for stretch in share.stretches)
        yield from (stretch for runs in self.runs for _, taken in runs for stretch in taken)

    @property
    def hungry(self) -> bool:
        """A demand gets nothing."""
        return any(not (share.stretches or runs) for share, runs in zip(self.shares, self.runs, strict=True))


@dataclass(slots=True, eq=False)
class Work:
    """One claimant whose cursor the claim holds, and what it has found for it.

    `beyond`: due rows that were not read do not come before this (None: all were read).  `changed_meanwhile`: a row
    was acked or given a new time while the claim waited for it.  `redeliveries`: due messages that the log has, in
    the order in which they go out; of these `redriven` came back from a dead-letter topic.  `ready`: runs whose
    next messages may go out, in that order too.  `passes_turn`: this claim changes `due_first`.
    """

    claimant: Claimant
    place: Place
    cursor: Cursor = UNKNOWN
    max_due_rows: int = 0
    due: list[DueAttempt] = field(default_factory=list)
    runs: list[OrderedRun] = field(default_factory=list)
    beyond: datetime | None = None
    changed_meanwhile: bool = False
    redeliveries: list[Redelivery] = field(default_factory=list)
    redriven: set[int] = field(default_factory=set)
    ready: Sequence[OrderedRun] = ()
    portion: Portion = field(default_factory=Portion)
    passes_turn: bool = False

    @property
    def subscription_id(self) -> int:
        return self.claimant.subscription_id

    @property
    def is_plain(self) -> bool:
        """Nothing is due, and no key is heeded: those that stand alike get alike."""
        return not (self.due or self.runs or self.claimant.ordered)

    @property
    def looks_further(self) -> bool:
        """Once it has looked: for what the log has of what is due, behind keys, or behind what is past its time."""
        return not self.is_plain or self.place.is_past

    @property
    def more(self) -> bool:
        """There may be more to claim at once than this claim hands out."""
        more_due = self.changed_meanwhile or self.beyond is not None or any(row.is_left for row in self.due)
        return more_due or self.portion.more or any(run.is_left for run in self.runs)

    @property
    def only_just_retried(self) -> bool:
        """All that is left are messages that the claimant leaves because they were just retried.

        Those are the last that a claim reads, so it has read all others.
        """
        if not self.claimant.leaves_just_retried or self.portion.more or self.changed_meanwhile:
            return False
        rows: list[DueAttempt | OrderedRun] = [*self.due, *self.runs]
        left = [row.is_just_retried for row in rows if row.is_left]
        return bool(left) and all(left)

    @property
    def due_first(self) -> bool:
        """As it is once this claim has committed."""
        return self.cursor.due_first != self.passes_turn

    def due_floor(self, now: datetime) -> datetime:
        """As it is once this claim has committed.  Who did not look for due rows knows nothing new."""
        if not self.claimant.looks_for_due:
            return self.cursor.due_floor
        times = chain(
            (row.next_delivery_at for row in self.due if row.stays),
            (run.next_delivery_at for run in self.runs if run.stays_due),
        )
        return max(self.cursor.due_floor, due_floor_after(now, times, self.beyond))
