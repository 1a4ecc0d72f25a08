"""Notifies callers that wait for an operation when it has changed, in this process or another."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def is_operation(name: str) -> bool:
    """Returns whether a name is that of an operation."""
    return "/operations/" in name


class OperationNotifications:
    """Notifications for callers that wait for operations.  A process has one and calls `changed` for every
    resource.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.wake_runner: Callable[[], None] = lambda: None

    def changed(self, name: str | None) -> None:
        """Wakes the runner, and the callers that wait for the operation of this name (None: all callers)."""
        if name is None or is_operation(name):
            self.wake_runner()
            names = list(self._waiting) if name is None else [name]
            for event in [event for each in names for event in self._waiting.get(each, ())]:
                event.set()

    @contextmanager
    def heard(self, name: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set when the operation of this name changes within the block."""
        event = asyncio.Event()
        self._waiting.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[name].discard(event)
            if not self._waiting[name]:
                del self._waiting[name]
