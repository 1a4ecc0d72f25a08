"""The different messages that an endpoint has failed since its last success."""

from collections.abc import Hashable

from broker.workers.push.fault import Fault

ALL_FAIL = 8  # so many, and the endpoint backs off as a whole
GONE_AFTER = 3  # so many answered with 410, and it is believed to be gone


class FailedMessages:
    """A set of bounded size: beyond what anybody asks for it does not grow."""

    __slots__ = ("_gone", "messages")

    def __init__(self) -> None:
        self.messages: set[Hashable] = set()
        self._gone: set[Hashable] = set()

    @property
    def are_gone(self) -> bool:
        """Whether the endpoint has answered with 410 often enough to be believed."""
        return len(self._gone) >= GONE_AFTER

    def add(self, message: Hashable, fault: Fault, *, most: int) -> None:
        """A message failed; `most`: how many the caller tells apart."""
        if len(self.messages) < max(most, ALL_FAIL):
            self.messages.add(message)
        if fault is not Fault.GONE:
            self._gone.discard(message)
        elif not self.are_gone:
            self._gone.add(message)

    def clear(self) -> None:
        """A request succeeded."""
        self.messages.clear()
        self._gone.clear()
