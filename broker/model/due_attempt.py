"""A due row of messages without ordering keys, which a claim or the dead-letter forwarder has locked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from broker.model.message_range import MessageRange
from broker.model.retry_policy import RetryPolicy
from broker.model.sequences import from_bits, from_multirange, to_bits

# The floor stays this far behind: a nack, or whatever else makes messages due, may carry a time that is a little
# old when it commits, for it has waited for a lock, or its process's clock is behind.
DUE_FLOOR_MARGIN = timedelta(seconds=60)


@dataclass(slots=True)
class DueAttempt:
    """A row of `delivery_attempts` whose time has come.  `asked`: the sequences that this claim would deliver.

    `failure`: how the attempt ended, where that is of interest.  `redriven`: its messages are delivered however old
    they are.
    `is_just_retried`: as core/claiming/transaction/allocation.py has it.
    `ready`: they may go out now: their attempts are not used up, and no retry delay has just begun.
    """

    attempt_id: int
    part: int
    status: str
    attempt_number: int
    next_delivery_at: datetime
    length: int
    open: dict[int, int]  # sequence -> its ordinal
    first_publish_time: datetime
    last_publish_time: datetime
    ordering_key: str | None
    failure: str | None = None
    redriven: bool = False
    is_just_retried: bool = False
    changed: bool = False
    ready: bool = False
    asked: list[int] = field(default_factory=list)
    gone: Sequence[int] = ()  # of these, what the log has no more, or the filter leaves out now
    past: Sequence[MessageRange] = ()  # and what is past its time
    were_out: int = 0  # messages whose ack deadline has passed

    @property
    def expired(self) -> int:
        """The number of messages whose ack deadline has passed once the row is written.

        Other messages are counted later.
        """
        # The forwarder counts what is exhausted: some of it no claim has met.
        return self.were_out if self.changed and self.status != "exhausted" else 0

    @property
    def stays(self) -> bool:
        """Whether messages of the row wait for its time."""
        return bool(self.open) and self.status != "exhausted"

    @property
    def is_left(self) -> bool:
        """Whether the row was ready, and some of its messages were not delivered."""
        return self.ready and bool(self.open)

    def begin(
        self, *, now: datetime, retry_policy: RetryPolicy | None, jitter: float, max_attempts: int | None
    ) -> None:
        """Begins a row whose time has come.

        Delivered `max_attempts` times it becomes exhausted (A5); one whose ack deadline has just passed begins its
        retry delay (A4).
        """
        self.were_out = len(self.open) if self.status == "delivering" else 0
        if max_attempts is not None and self.attempt_number >= max_attempts and self.open:
            self.status, self.changed = "exhausted", True
            return
        if self.status == "delivering" and retry_policy is not None:
            self.next_delivery_at += retry_policy.delay(self.attempt_number) * (1 + jitter)
            self.changed = True
        self.ready = self.next_delivery_at <= now

    def ask(self, quota: int) -> int:
        """Chooses up to `quota` of its messages to ask for.  Returns how many."""
        self.asked = list(self.open)[:quota]
        self.changed = self.changed or not self.open  # a row without bits only waits to be deleted
        return len(self.asked)

    def drop(self, seqs: Iterable[int]) -> None:
        """Take messages out of the row: delivered anew, or not in the log any more."""
        for seq in seqs:
            del self.open[seq]
            self.changed = True


def due_attempt(
    row: Any, *, failure: str | None = None, redriven: bool = False, is_just_retried: bool = False
) -> DueAttempt:
    """Converts a named row with the columns of `delivery_attempts`.

    One that holds a key counts the attempts of its first open message.
    """
    all_seqs = from_multirange(row.seqs)
    number = row.attempt_number
    if row.ordering_key is not None and "1" in row.open:
        number = attempt_numbers(row.attempt_numbers)[row.open.index("1")]
    return DueAttempt(
        attempt_id=row.attempt_id,
        part=row.part,
        status=row.status,
        attempt_number=number,
        next_delivery_at=row.next_delivery_at,
        length=len(row.open),
        open={all_seqs[ordinal]: ordinal for ordinal in from_bits(row.open)},
        first_publish_time=row.first_publish_time,
        last_publish_time=row.last_publish_time,
        ordering_key=row.ordering_key,
        failure=failure,
        redriven=redriven,
        is_just_retried=is_just_retried,
    )


def attempt_numbers(text: str) -> list[int]:
    """Parses the text of an integer array."""
    return [int(number) for number in text.strip("{}").split(",") if number]


def first_due_floor(now: datetime) -> datetime:
    """Returns the due floor of a cursor that is new, or is moved by a seek."""
    return now - DUE_FLOOR_MARGIN


def due_floor_after(now: datetime, times_left: Iterable[datetime], due_beyond: datetime | None) -> datetime:
    """The time before which nothing is due any more once a claim has committed.

    `due_beyond`: due rows that it did not look at do not come before this (None: it looked at all).
    """
    limits = [first_due_floor(now), *times_left]
    return min(limits if due_beyond is None else [*limits, due_beyond])


def replacements(due: Sequence[tuple[int, DueAttempt]]) -> Mapping[str, Any] | None:
    """The parameters of replace_attempts.sql for rows of these subscriptions; None if none has changed."""
    changed = [(subscription_id, row) for subscription_id, row in due if row.changed]
    if not changed:
        return None
    rows = [row for _, row in changed]
    return {
        "subscription_ids": [subscription_id for subscription_id, _ in changed],
        "attempt_ids": [row.attempt_id for row in rows],
        "parts": [row.part for row in rows],
        "open": [to_bits(row.open.values(), row.length) for row in rows],
        "statuses": [row.status if row.status in ("exhausted", "nacked") else "pending" for row in rows],
        "next_delivery_ats": [row.next_delivery_at for row in rows],
    }
