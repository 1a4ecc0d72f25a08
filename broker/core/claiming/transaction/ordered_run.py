"""Ordered runs: how a claim changes the row of `delivery_attempts` that holds an ordering key (A6).

    no row ──first fresh messages of the key──► out ──all acked──► due at once ──a claim──► out (what waits next)
                                                 │                                     └──► no row (nothing waits)
                                                 │ nack, or the deadline passes
                                                 ▼
                        the message and all later ones of its key came back ──retry delay──► out again, in order

While the row exists, claims skip fresh messages of its key, which wait in the log before the cursor (`waiting`).
Rows are inserted and deleted only under the lock of the cursor; otherwise a claim could skip a message that no
later claim finds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from itertools import chain, takewhile

from broker.model.message_range import MessageRange
from broker.model.retry_policy import RetryPolicy

Preferred = Callable[[str], int | None]


def nobody(key: str) -> int | None:
    """Prefer no request for any ordering key."""
    return None


class Phase(Enum):
    """The phase of a locked run in its claim.

    DUE ──► EXHAUSTED    delivered as often as the dead-letter policy allows: the forwarder's
     ├────► DELAYED      its deadline has just passed, and its retry delay begins
     ├────► READY        its next messages are in the log ──► OUT  a request takes them
     ├────► LOST         what was asked for is gone, or past its time: the row is to be written anew without it
     └────► FREE         nothing came back, and nothing waits: the key comes free
    """

    DUE = auto()
    EXHAUSTED = auto()
    DELAYED = auto()
    READY = auto()
    LOST = auto()
    FREE = auto()
    OUT = auto()


@dataclass(slots=True)
class OrderedRun:
    """A locked row whose time has come.  `left` came back, in order, after so many attempts each (`numbers`).

    `redriven`: some of it came back from a dead-letter topic, so its messages are delivered however old they are.
    `asked`: of `left`; empty if the messages that wait in the log are asked for.  `available` may be delivered
    next, `taken` are, and those that are `past` their time never.  `retimed`: its status or its time is another
    than its row's.
    """

    subscription_id: int
    attempt_id: int
    status: str
    next_delivery_at: datetime
    bits: str
    ordering_key: str
    left: Sequence[int]
    numbers: Sequence[int]
    waiting: str
    first_publish_time: datetime
    last_publish_time: datetime
    redriven: bool = False
    is_just_retried: bool = False  # core/claiming/transaction/allocation.py
    phase: Phase = Phase.DUE
    retimed: bool = False
    asked: Sequence[int] = ()
    available: list[MessageRange] = field(default_factory=list)
    past: list[MessageRange] = field(default_factory=list)
    taken: Sequence[MessageRange] = ()
    new_attempt_id: int = 0  # under which it is written again
    were_out: int = 0  # messages whose ack deadline has passed

    @property
    def next_number(self) -> int:
        """The attempt number of the next messages."""
        return self.numbers[0] + 1 if self.left else 1

    @property
    def is_left(self) -> bool:
        """Whether the run leaves work for the next claim, which can begin at once."""
        return self.phase in (Phase.READY, Phase.LOST)

    @property
    def stays(self) -> bool:
        """The row is left with its time (which may have passed)."""
        return self.phase in (Phase.DUE, Phase.DELAYED, Phase.READY, Phase.LOST)

    @property
    def expired(self) -> int:
        """The number of messages whose ack deadline has passed once the row is written.

        Other messages are counted later.
        """
        if self.retimed:
            return self.were_out if self.phase is not Phase.EXHAUSTED else 0  # the forwarder counts those
        return min(self.were_out, len(self.taken)) if self.phase is Phase.OUT else 0

    @property
    def gone(self) -> list[int]:
        """The messages that were asked for and are no longer in the log, or do not match the filter."""
        existing = {message.first_seq for message in chain(self.available, self.past)}
        return [seq for seq in self.asked if seq not in existing]

    @property
    def passed(self) -> list[MessageRange]:
        """The expired messages that are neither in the row, once it is written anew, nor waiting for it."""
        if not self.new_attempt_id:
            return []
        end = self.taken[-1].first_seq if self.taken and not self.left else None
        return [message for message in self.past if end is None or message.first_seq < end]

    @property
    def waiting_from(self) -> int | None:
        """The first sequence that waits, where that is another than before."""
        last = self.taken or self.past
        return last[-1].first_seq + 1 if last and not self.left else None

    def begin(
        self, *, now: datetime, retry_policy: RetryPolicy | None, jitter: float, max_attempts: int | None
    ) -> None:
        """Begins a due run: it may be exhausted by now, or its retry delay begins."""
        if self.left and self.status == "delivering":
            self.were_out = sum(1 for _ in takewhile(self.numbers[0].__eq__, self.numbers))
        if self.left and max_attempts is not None and self.numbers[0] >= max_attempts:
            self.phase, self.status, self.retimed = Phase.EXHAUSTED, "exhausted", True
            return
        if self.left and self.status == "delivering" and retry_policy is not None:
            self.next_delivery_at += retry_policy.delay(self.numbers[0]) * (1 + jitter)
            self.status, self.retimed = "pending", True
            if self.next_delivery_at > now:
                self.phase = Phase.DELAYED

    def ask(self, most: int, *, alone: bool) -> int:
        """Chooses up to `most` messages to ask for; `alone`: one that failed before is delivered alone.

        Returns how many.
        """
        if not self.left:
            return most
        same = sum(1 for _ in takewhile(self.numbers[0].__eq__, self.numbers))
        self.asked = self.left[: 1 if alone and self.numbers[0] > 0 else min(same, most)]
        return len(self.asked)

    def looked_up(self) -> None:
        """`available` is all there is of what was asked."""
        if self.available:
            self.phase = Phase.READY
        else:
            self.phase = Phase.LOST if self.left or self.past else Phase.FREE

    def take(self, messages: Sequence[MessageRange]) -> None:
        """Give these messages, the first that are available, to a request."""
        self.phase, self.taken = Phase.OUT, messages

    def behind(self) -> list[tuple[int, int]]:
        """Returns the messages that came back and are not delivered now: sequences with their attempt numbers."""
        dropped = {message.first_seq for message in chain(self.taken, self.past)}.union(self.gone)
        return [(seq, number) for seq, number in zip(self.left, self.numbers, strict=True) if seq not in dropped]


GivenRun = tuple[OrderedRun, Sequence[MessageRange]]  # with the messages that are delivered
