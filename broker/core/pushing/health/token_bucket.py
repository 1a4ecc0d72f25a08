"""A rate limit in messages a second (C3), as pure arithmetic on times: seconds of a monotonic clock."""

from broker.model.push_config import Digest

_ROUNDING = 1e-6  # of a message: the error that sums of times may have


class TokenBucket:
    """Holds one second's worth of messages, at least one, and is full at first.

    `take` may take more than there is, so that a request larger than the bucket can go at all; what follows then
    waits until the debt is paid.  Over any span of s seconds no more is taken than rate * s, one bucket, and what
    the largest request exceeds one message by.

    The only state is the time at which it would be full again, so that "enough for one" begins at an exact time.
    """

    __slots__ = ("_capacity", "_full_at", "_rate")

    def __init__(self, rate: float, *, now: float) -> None:
        """`rate`: messages a second, above 0."""
        self._rate = rate
        self._capacity = max(1.0, rate)
        self._full_at = now

    @property
    def open_at(self) -> float:
        """The time from which on there is enough for one message."""
        return self._full_at - (self._capacity - 1.0) / self._rate

    def messages(self, now: float) -> int:
        """Returns how many messages may be sent now."""
        if now < self.open_at:
            return 0
        held = self._capacity - max(0.0, self._full_at - now) * self._rate
        return max(1, int(held + _ROUNDING))

    def take(self, messages: int, now: float) -> None:
        self._full_at = max(self._full_at, now) + messages / self._rate

    def change_rate(self, rate: float, now: float) -> None:
        """Changes the rate.  The messages that are saved stay (up to the new capacity), and so does a debt."""
        held = self._capacity - max(0.0, self._full_at - now) * self._rate
        self._rate, self._capacity = rate, max(1.0, rate)
        self._full_at = now + (self._capacity - min(held, self._capacity)) / rate

    def requests(self, now: float, *, digest: Digest | None) -> int:
        """Returns how many requests may start.  With digests, which may be full, one may go into debt."""
        messages = self.messages(now)
        if messages and digest is not None:
            return max(1, messages // digest.max_messages)
        return messages


def token_bucket(rate: float | None, *, now: float) -> TokenBucket | None:
    """Returns a bucket for so many messages a second; None: no limit."""
    return None if rate is None else TokenBucket(rate, now=now)
