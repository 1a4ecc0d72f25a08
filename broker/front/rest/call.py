"""One REST call, as a handler sees it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from broker.services.services import Services


@dataclass(slots=True)
class Call:
    """`name` is the resource that the path names, decoded once: "projects/p/topics/t", or the parent of a
    collection.  `query` has the first value of each parameter.  `body` is decompressed.  `hung_up()` completes
    once the caller has closed the connection.
    """

    services: Services
    name: str
    query: Mapping[str, str]
    body: bytes
    hung_up: Callable[[], Awaitable[None]]

    @property
    def update_mask(self) -> str | None:
        """The update mask, where it is given as a query parameter."""
        return self.query.get("updateMask", self.query.get("update_mask"))

    def has_hung_up(self) -> bool:
        """Whether the caller is known to be gone already.

        Runs `hung_up()` to its first real wait: if it ends before that, the connection is closed.  This costs a
        microsecond; a task and a timeout for it would cost fifty.
        """
        waiting = self.hung_up().__await__()
        try:
            next(waiting)
        except StopIteration:
            return True
        finally:
            waiting.close()
        return False
