"""One REST call, as a handler sees it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.services.services import Services

_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{0,9})?")


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
    headers: Iterable[tuple[bytes, bytes]]
    hung_up: Callable[[], Awaitable[None]]

    @property
    def update_mask(self) -> str | None:
        """The update mask, where it is given as a query parameter."""
        return self.query.get("updateMask", self.query.get("update_mask"))

    def seconds_left(self) -> float | None:
        """How long the caller waits for the answer, as far as it says so.

        X-Server-Timeout, in seconds: "timeout for the server to finish processing the request", one of the system
        parameters of Google's APIs (https://cloud.google.com/apis/docs/system-parameters).  What is no number is
        ignored.
        """
        given = next((value for name, value in self.headers if name == b"x-server-timeout"), b"")
        return float(given) if _SECONDS.fullmatch(given) else None

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
