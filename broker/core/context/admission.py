"""The interface of limits on how much projects publish, receive and own.

The core asks an `Admission` before it acts, and reports what it has done.  A process whose features have none uses
UNLIMITED, which admits everything.
"""

from time import monotonic
from types import TracebackType
from typing import Protocol

from broker.db.driver.database import ResourceConnection
from broker.model.quota_names import Counted


class Gauge(Protocol):
    """Measures what a principal publishes, or receives, in a project.

    It is for use at once: after an `await` another one may have taken its place.  `now` is a time of
    `Admission.ticks`, and `size` is in bytes.
    """

    def check(self, now: float, *, requests_alone: bool = False) -> None:
        """Raise QuotaExceeded if a call has to wait.  `requests_alone`: for a call that moves no messages."""

    def take(self, now: float, *, requests: int = 0, messages: int = 0, size: int = 0) -> None:
        """Count what was done, whether or not anything was left."""

    def wait(self, now: float) -> float:
        """Return the seconds until messages may be delivered; requests do not matter."""

    def left(self, now: float, *, messages: int, size: int) -> tuple[int, int]:
        """Return how many of so many messages and bytes may be delivered, one message at least."""


class CountedConnection(Protocol):
    """A stream, or a pull that waits, which is counted until it is closed; it may be closed again."""

    def close(self) -> None:
        """Count it no more."""

    def __enter__(self) -> None:
        """Begin a block at whose end it is closed."""

    def __exit__(self, _type: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        """Close it."""


class Admission(Protocol):
    """Limits rates of calls and messages, the number of resources, and connections, by project and principal.

    `is_metered`: whether a rate or an amount is limited anywhere.  If not, the hot paths ask for no gauge.
    """

    is_metered: bool

    def ticks(self) -> float:
        """Return the time of the clock that gauges go by."""

    def publishing(self, project: str, principal: str) -> Gauge:
        """Return the gauge of what a principal ("": unknown) publishes in a project ("projects/p")."""

    def subscribing(self, project: str, principal: str) -> Gauge:
        """Return the gauge of what a principal ("": unknown) receives in a project."""

    async def check(self, gauge: Gauge, project: str, *, requests_alone: bool = False) -> float:
        """Check a gauge, and return the time to `take` by.

        Raises QuotaExceeded, after a while if the project is refused often.
        """

    async def check_count(
        self, connection: ResourceConnection, project: str, counted: Counted, most: int | None = None
    ) -> None:
        """Check the number of resources, in the transaction that has just inserted one more.

        `most`: what any project may have, if resources are counted at all.  Raises QuotaExceeded.
        """

    async def connect(self, project: str) -> CountedConnection:
        """Count one more connection, which the caller closes.  Raises QuotaExceeded."""


class _NoGauge:
    def check(self, now: float, *, requests_alone: bool = False) -> None:
        pass

    def take(self, now: float, *, requests: int = 0, messages: int = 0, size: int = 0) -> None:
        pass

    def wait(self, now: float) -> float:
        return 0.0

    def left(self, now: float, *, messages: int, size: int) -> tuple[int, int]:
        return messages, size


class _NotCounted:
    def close(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        pass


NO_GAUGE: Gauge = _NoGauge()
_NOT_COUNTED = _NotCounted()


class _Unlimited:
    """Counts nothing."""

    is_metered = False

    def ticks(self) -> float:
        return monotonic()

    def publishing(self, project: str, principal: str) -> Gauge:
        return NO_GAUGE

    def subscribing(self, project: str, principal: str) -> Gauge:
        return NO_GAUGE

    async def check(self, gauge: Gauge, project: str, *, requests_alone: bool = False) -> float:
        return monotonic()

    async def check_count(
        self, connection: ResourceConnection, project: str, counted: Counted, most: int | None = None
    ) -> None:
        pass

    async def connect(self, project: str) -> CountedConnection:
        return _NOT_COUNTED


UNLIMITED: Admission = _Unlimited()
