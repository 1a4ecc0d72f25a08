"""The counters of a process: blocks in its part of the book (book.py), by the names of resources."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from broker.observability.metrics.book import REUSE_SECONDS, CounterBook
from broker.observability.metrics.families import LAYOUTS

if TYPE_CHECKING:
    from broker.observability.tracing import Tracing

_MOST_KNOWN = 50_000  # names, and ids: some 10 MB


class Counters:
    """The counters of a process.  Its blocks are written by `block[SLOT] += 1` (families.py has the slots).

    `tracing`: where counted actions have spans too; None: nowhere, and OpenTelemetry is not even imported.
    `certificate()`: from when until when the certificate of the port is valid, as Unix times; None: there is none.
    """

    def __init__(self, book: CounterBook | None = None, *, process: int = 0) -> None:
        """`process`: which of the book's it is, from 0.  Without a book it has one of its own."""
        self.book = book or CounterBook(LAYOUTS)
        self.tracing: Tracing | None = None
        self.certificate: Callable[[], tuple[float, float] | None] = lambda: None
        self._number = process
        self.book.clear_gauges(process)
        self.process = self.book.block("process", process, 0)
        self._topics: dict[str, memoryview] = {}
        self._subscriptions: dict[str, memoryview] = {}
        self._projects: dict[str, memoryview] = {}
        self._projects_until = 0.0
        self._by_id: dict[int, str] = {}

    @property
    def is_first_process(self) -> bool:
        """Whether this is the first of the processes that count in its book."""
        return self._number == 0

    def topic(self, name: str) -> memoryview:
        """The counters of a topic that exists."""
        return self._topics.get(name) or self._find("topic", name, self._topics)

    def subscription(self, name: str) -> memoryview:
        """The counters of a subscription that exists."""
        return self._subscriptions.get(name) or self._find("subscription", name, self._subscriptions)

    def project(self, name: str) -> memoryview:
        """The counters of a project ("projects/p"); of what stands for several, those of OTHER."""
        now = monotonic()
        if now >= self._projects_until:  # no change of a resource says that a project is gone
            self._projects.clear()
            self._projects_until = now + REUSE_SECONDS / 2
        return self._projects.get(name) or self._find("project", name, self._projects)

    def unknown_topic(self) -> memoryview:
        """Returns the counters of all topics that do not exist."""
        return self.book.block("topic", self._number, 0)

    def know(self, subscription_id: int, name: str) -> None:
        """`of_id` may be asked for it."""
        if self._by_id.get(subscription_id) != name:
            if len(self._by_id) >= _MOST_KNOWN:
                del self._by_id[next(iter(self._by_id))]
            self._by_id[subscription_id] = name

    def name_of(self, subscription_id: int) -> str | None:
        """Returns the name of a subscription, as `know` was given it."""
        return self._by_id.get(subscription_id)

    def of_id(self, subscription_id: int) -> memoryview:
        """Returns the counters of a subscription by id; those of OTHER if it is not known."""
        name = self._by_id.get(subscription_id)
        return self.book.block("subscription", self._number, 0) if name is None else self.subscription(name)

    def forget(self, name: str | None) -> None:
        """Forgets the counters of a resource that was changed, or (None) of all.

        If the resource is deleted, another one soon gets its place.
        """
        if name is None:
            self._topics.clear()
            self._subscriptions.clear()
            self._projects.clear()
        else:
            self._topics.pop(name, None)
            self._subscriptions.pop(name, None)

    def _find(self, kind: str, name: str, known: dict[str, memoryview]) -> memoryview:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        entry = self.book.entry(kind, name) if name.startswith("projects/") else 0
        block = known[name] = self.book.block(kind, self._number, entry)
        return block
