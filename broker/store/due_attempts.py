"""The due rows that a claim has locked: which are ready, what is asked of them, what is left of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from broker.domain.delivery import LogMessage
from broker.domain.retry_policy import RetryPolicy
from broker.domain.sequences import from_bits, from_multirange, to_bits, to_multirange

# The floor stays this far behind: a nack may carry a time that is a little old when it commits.
DUE_FLOOR_MARGIN = timedelta(seconds=60)


@dataclass(slots=True)
class DueAttempt:
    """A row of `delivery_attempts` whose time has come.  `asked`: the sequences that this claim would deliver.

    `failure`: how the attempt ended, where that is of interest.
    """

    attempt_id: int
    part: int
    status: str
    attempt_number: int
    next_delivery_at: datetime
    length: int
    open: dict[int, int]  # sequence -> its bit's position
    first_publish_time: datetime
    last_publish_time: datetime
    ordering_key: str | None
    failure: str | None = None
    changed: bool = False
    asked: list[int] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        """All that was asked for is gone from the log."""
        return bool(self.asked) and self.open.keys().isdisjoint(self.asked)

    def drop(self, seqs: Iterable[int]) -> None:
        """Take messages out of the row: delivered anew, or not in the log any more."""
        for seq in seqs:
            del self.open[seq]
            self.changed = True


def due_attempt(row: Sequence[Any]) -> DueAttempt:
    """From a row of lock_due_attempts.sql.  One that holds a key counts the attempts of its first open message."""
    attempt_id, part, status, number, next_delivery_at, seqs, bits, first, last, key, numbers, _ = row
    all_seqs = from_multirange(seqs)
    if key is not None and "1" in bits:
        number = attempt_numbers(numbers)[bits.index("1")]
    return DueAttempt(
        attempt_id=attempt_id,
        part=part,
        status=status,
        attempt_number=number,
        next_delivery_at=next_delivery_at,
        length=len(bits),
        open={all_seqs[position]: position for position in from_bits(bits)},
        first_publish_time=first,
        last_publish_time=last,
        ordering_key=key,
    )


def attempt_numbers(text: str) -> list[int]:
    """From the text of an integer array."""
    return [int(number) for number in text.strip("{}").split(",") if number]


def ready_attempts(
    due: Sequence[DueAttempt],
    *,
    now: datetime,
    retry_policy: RetryPolicy | None,
    jitter: float,
    max_attempts: int | None,
) -> list[DueAttempt]:
    """The rows to deliver from, earliest first.

    One that was delivered `max_attempts` times becomes exhausted instead (A5); one whose ack deadline has just
    passed begins its retry delay (A4).
    """
    ready = []
    for row in sorted(due, key=lambda row: (row.next_delivery_at, min(row.open, default=0))):
        if max_attempts is not None and row.attempt_number >= max_attempts and row.open:
            row.status, row.changed = "exhausted", True
            continue
        if row.status == "delivering" and retry_policy is not None:
            row.next_delivery_at += retry_policy.delay(row.attempt_number) * (1 + jitter)
            row.changed = True
        if row.next_delivery_at <= now:
            ready.append(row)
    return ready


def ask(rows: Iterable[DueAttempt], quota: int) -> None:
    """Spread a claim's quota over the ready rows."""
    for row in rows:
        row.asked = list(row.open)[:quota]
        row.changed = row.changed or not row.open  # a row without bits only waits to be deleted
        quota -= len(row.asked)


def times_left(due: Iterable[DueAttempt]) -> Iterator[datetime]:
    """When what this claim leaves behind is due."""
    return (row.next_delivery_at for row in due if row.open and row.status != "exhausted")


def due_floor_after(now: datetime, times_left: Iterable[datetime], due_beyond: datetime | None) -> datetime:
    """The time before which nothing is due any more once a claim has committed.

    `due_beyond`: due rows that it did not look at do not come before this (None: it looked at all).
    """
    limits = [now - DUE_FLOOR_MARGIN, *times_left]
    return min(limits if due_beyond is None else [*limits, due_beyond])


def run_columns(runs: Sequence[Sequence[LogMessage]]) -> dict[str, Any]:
    """Which messages new rows hold, as parameters: all of them are out.  Rows often hold the very same run."""
    distinct = {id(run): run for run in runs}
    held = {name: (to_multirange([m.seq for m in run]), "1" * len(run)) for name, run in distinct.items()}
    return {
        "seqs": [held[id(run)][0] for run in runs],
        "open": [held[id(run)][1] for run in runs],
        "first_publish_times": [run[0].publish_time for run in runs],
        "last_publish_times": [run[-1].publish_time for run in runs],
    }


def replacements(due: Iterable[DueAttempt]) -> Mapping[str, Any] | None:
    """The parameters of replace_attempts.sql; None if no row has changed."""
    changed = [row for row in due if row.changed]
    if not changed:
        return None
    return {
        "attempt_ids": [row.attempt_id for row in changed],
        "parts": [row.part for row in changed],
        "open": [to_bits(row.open.values(), row.length) for row in changed],
        "statuses": [row.status if row.status in ("exhausted", "nacked") else "pending" for row in changed],
        "next_delivery_ats": [row.next_delivery_at for row in changed],
    }
