"""The head of a request: its request line and headers, as the parser has read them (reader.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_END = b"\r\n\r\n"
_MAX_KNOWN = 4_096  # heads
_MAX_KNOWN_BYTES = 4_194_304  # of all of them; with their parsed form about 10 MB
_LONGEST_KNOWN = 4_096  # bytes of such a head: with a signed token it is longer than 1,024


class Verdict(NamedTuple):
    """The verdict of web_pages.py on a head.

    `host`: a name that is not ours; `origin`: of the page that is refused ("": there is none of either).
    `headers`: lines of the answer to a page that may read it; `preflight`: the browser only asks whether it may.
    """

    host: str = ""
    origin: str = ""
    headers: bytes = b""
    preflight: bool = False


SERVED = Verdict()  # the verdict for all requests of programs


@dataclass(slots=True)
class Head:
    """`path` and `query` are as they were sent, percent-encoded and apart; `headers` have names in small letters.

    `length`: bytes of the body, None where it comes in chunks; `encoding`: its Content-Encoding (b"": it has none).
    `keep_alive`: the client means to send another request.  `expects_continue`: it waits to be asked for the body.
    All these stay as they are; `verdict` is what web_pages.py finds of it (None: not asked yet), and `request_id`
    the caller's with it (b"": none that will do).  `reading` is what the API has read from it (None: nothing yet).
    """

    method: str
    path: bytes
    query: bytes
    version: str
    headers: Sequence[tuple[bytes, bytes]]
    length: int | None
    keep_alive: bool
    expects_continue: bool
    encoding: bytes = b""
    verdict: Verdict | None = None
    request_id: bytes = b""
    reading: Any = None

    def header(self, name: bytes) -> bytes:
        """The first of that name; b"": there is none."""
        return next((value for each, value in self.headers if each == name), b"")


class KnownHeads:
    """Heads that the parser has read before, of all connections of a process.

    A client sends the same head again and again: the same call with a body of the same length.  What the parser has
    taken as a whole request once, byte for byte, needs no parser the next time.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self._bytes = 0  # of those heads

    def find(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the body, if `data` is one request, no more and no less, whose head is known."""
        size = data.find(_END) + len(_END)
        head = self._known.get(data[:size])
        if head is None or size + (head.length or 0) != len(data):
            return None
        return head, data[size:]

    def remember(self, data: bytes, head: Head) -> None:
        """`data` was one request, no more and no less, with that head."""
        if head.length is None or not head.keep_alive or head.expects_continue:
            return
        size = len(data) - head.length
        if size <= _LONGEST_KNOWN and data.find(_END) + len(_END) == size:  # otherwise empty lines came before it
            if len(self._known) >= _MAX_KNOWN or self._bytes + size > _MAX_KNOWN_BYTES:
                self._known.clear()
                self._bytes = 0
            self._known[data[:size]] = head
            self._bytes += size
