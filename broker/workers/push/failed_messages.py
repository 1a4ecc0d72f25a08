"""The different messages that an endpoint has failed since its last success."""

from collections.abc import Hashable

from broker.workers.push.fault import Fault

ALL_FAIL = 8  # so many, and the endpoint backs off as a whole
GONE_AFTER = 3  # so many answered with 410, and it is believed to be gone


class FailedMessages:
    """A set of bounded size: beyond what anybody asks for it does not grow."""

    __slots__ = ("_failed", "_gone")

    def __init__(self) -> None:
        self._failed: set[Hashable] = set()
        self._gone: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._failed)

    @property
    def are_gone(self) -> bool:
        """Whether the endpoint has answered with 410 often enough to be believed."""
        return len(self._gone) >= GONE_AFTER

    def add(self, message: Hashable, fault: Fault, *, most: int) -> None:
        """A message failed; `most`: how many the caller tells apart."""
        if len(self._failed) < max(most, ALL_FAIL):
            self._failed.add(message)
        if fault is not Fault.GONE:
            self._gone.discard(message)
        elif not self.are_gone:
            self._gone.add(message)

    def clear(self) -> None:
        """A request succeeded."""
        if self._failed:
            self._failed.clear()
            self._gone.clear()
