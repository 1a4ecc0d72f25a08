"""One REST call, as a handler sees it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from broker.domain.caller import ANONYMOUS, Caller
from broker.front.gate import Gate
from broker.port.http1.exchange import Exchange
from broker.services.services import Services

_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{0,9})?")


@dataclass(slots=True)
class Call:
    """`name` is the resource that the path names, decoded once: "projects/p/topics/t", or the parent of a
    collection.  `query` has the first value of each parameter.  `body` is decompressed.  `caller` is
    ANONYMOUS where authentication is off.
    """

    services: Services
    name: str
    query: Mapping[str, str]
    body: bytes
    exchange: Exchange
    caller: Caller = ANONYMOUS
    gate: Gate | None = None

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
        given = next((value for name, value in self.exchange.head.headers if name == b"x-server-timeout"), b"")
        return float(given) if _SECONDS.fullmatch(given) else None
