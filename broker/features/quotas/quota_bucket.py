"""Rates that several processes enforce together, as pure arithmetic on times: seconds of a monotonic clock.

All processes share one bucket in the database: it holds one second's worth, fills at the rate, and may be
negative.  Between two updates (`balanced`) a process uses its share: the n-th part of what the bucket held and of
what it gains.  Everything that was taken is reported at the next update, so the sum is exact whichever process took
it, and the only busy process soon gets all (docs/decisions/0024-quotas.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.features.quotas.quota import exceeded

_ROUNDING = 1e-6  # what the sums of times may be off, as a part of the rate
_LITTLE = 0.05  # as a part of what a process may take in a second
SELDOM_SECONDS = 1.0  # until then little is told
LATER_SECONDS = 0.1  # than it is worth: by then what others took is known, and clocks are not that far apart
NEVER_SECONDS = 60.0  # when to try again what a limit of 0 refuses: somebody may have raised it


class QuotaBucket:
    """The part of a bucket that this process has.

    It may be taken from while it holds anything: what a request takes beyond is paid back before the next, so that
    no request is too large, and over s seconds all processes together take rate * (s + 1), and what their largest
    requests exceed it by.
    """

    __slots__ = ("_at", "_level", "_pace", "_reported_at", "_reporting", "_unreported", "rate")

    def __init__(self, rate: int, *, processes: int, now: float) -> None:
        """`rate`: a second; `processes`: how many share it."""
        self.rate = rate
        self._pace = rate / processes
        self._level = rate / processes
        self._at = now  # of `_level`; in the future while the debt of all is paid
        self._unreported = self._reporting = 0.0
        self._reported_at = now

    def wait(self, now: float) -> float:
        """Seconds until it may be taken from; 0: now."""
        if self._level > 0 and self._at <= now:  # there was something left already
            return 0.0
        if not self.rate:
            return NEVER_SECONDS
        self._advance(now)
        if self._level >= -self.rate * _ROUNDING:
            return max(self._at - now, 0.0)
        return max(self._at - now, 0.0) - self._level / self._pace

    def left(self, now: float) -> float:
        """Returns how much can be taken without a debt; less than 0 while there is one."""
        self._advance(now)
        return self._level if self._at <= now else self._level - (self._at - now) * self.rate

    def take(self, amount: float, now: float) -> None:
        self._advance(now)
        self._level -= amount
        self._unreported += amount

    @property
    def has_unreported(self) -> bool:
        """Whether something was taken that the others do not know of."""
        return self._unreported > 0

    def has_much_unreported(self, now: float) -> bool:
        """Whether so much is unreported, or for so long, that the other processes must know.

        Far from the limit a process reports seldom.
        """
        return self._unreported > self._pace * _LITTLE or (
            self._unreported > 0 and now - self._reported_at >= SELDOM_SECONDS
        )

    def report(self) -> float:
        """Returns how much was taken, to report it to the other processes; `balanced` or `unreport` follows."""
        self._reporting, self._unreported = self._unreported, 0.0
        return self._reporting

    def unreport(self) -> None:
        """Takes the last report back, since it could not be made."""
        self._unreported, self._reporting = self._unreported + self._reporting, 0.0

    def balanced(self, held: float, *, processes: int, now: float) -> None:
        """Completes the last report; the shared bucket then held so much."""
        self._reporting = 0.0
        self._reported_at = now
        self._pace = self.rate / processes
        self._at = now + (max(0.0, -held) / self.rate if self.rate else 0.0)
        self._level = max(0.0, held) / processes - self._unreported

    def _advance(self, now: float) -> None:
        if now > self._at:
            self._level = min(float(self.rate), self._level + (now - self._at) * self._pace)
            self._at = now


class Metered(NamedTuple):
    """A bucket, the quota that it is of, and whose: of a project, or of a principal in it."""

    quota: str
    project: str
    principal: str
    unit: int  # 0: requests, 1: messages, 2: bytes
    bucket: QuotaBucket


class Level:
    """The amount that a project retains, as was last read, and what this process has added to it since."""

    __slots__ = ("kept", "last_kept")

    def __init__(self) -> None:
        self.kept = self.last_kept = 0

    def refresh(self, kept: int) -> None:
        """Sets the amount that was read."""
        self.kept = self.last_kept = kept

    def is_pressing(self, limit: int, *, processes: int) -> bool:
        """Whether half of what was left may be gone, if all processes add as much as this one."""
        added = self.kept - self.last_kept
        return added > 0 and 2 * added * processes >= limit - self.last_kept


class Ceiling(NamedTuple):
    """A level of bytes that is not to be passed, the quota that it is of, and whose."""

    quota: str
    project: str
    limit: int
    level: Level


class QuotaGauge:
    """The Gauge of a principal in a project: buckets, and perhaps a ceiling."""

    __slots__ = ("_buckets", "_ceiling")

    def __init__(self, buckets: Sequence[Metered], ceiling: Ceiling | None = None) -> None:
        self._buckets = buckets
        self._ceiling = ceiling

    def check(self, now: float, *, requests_alone: bool = False) -> None:
        """Raise QuotaExceeded, with the longest wait, if a call has to wait; take nothing.

        `requests_alone`: for a call that moves no messages.
        """
        ceiling = self._ceiling
        if ceiling is not None and ceiling.level.kept >= ceiling.limit:
            raise exceeded(ceiling.quota, project=ceiling.project, limit=ceiling.limit, usage=ceiling.level.kept)
        seconds, metered = 0.0, None
        for each in self._buckets:
            if not (requests_alone and each.unit) and (wait := each.bucket.wait(now)) > seconds:
                seconds, metered = wait, each
        if metered is not None:
            bucket = metered.bucket
            raise exceeded(
                metered.quota,
                project=metered.project,
                principal=metered.principal,
                limit=bucket.rate,
                usage=bucket.rate - bucket.left(now),
                retry_seconds=seconds + LATER_SECONDS,
            )

    def take(self, now: float, *, requests: int = 0, messages: int = 0, size: int = 0) -> None:
        """Takes requests, messages and `size` bytes, whether or not there was anything left."""
        amounts = requests, messages, size
        for metered in self._buckets:
            if amount := amounts[metered.unit]:
                metered.bucket.take(amount, now)
        if self._ceiling is not None:
            self._ceiling.level.kept += size

    def wait(self, now: float) -> float:
        """Returns the seconds until messages may be delivered; requests are not counted."""
        return max((m.bucket.wait(now) for m in self._buckets if m.unit), default=0.0)

    def left(self, now: float, *, messages: int, size: int) -> tuple[int, int]:
        """Returns at most so many messages and bytes, as far as there are any left; one message at least."""
        left = [messages, size]
        for metered in self._buckets:
            if metered.unit:
                left[metered.unit - 1] = min(left[metered.unit - 1], max(1, int(metered.bucket.left(now))))
        return left[0], left[1]
