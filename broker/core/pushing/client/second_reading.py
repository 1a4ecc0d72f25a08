"""Parses answers that httptools refuses, by h11.

httptools is fast, and refuses some answers that RFC 9112 accepts: two equal Content-Length headers, a
Content-Length together with chunked encoding, lines that end without CR, folded headers.  So h11 judges what
httptools refuses; the connection is closed afterwards (docs/decisions/0072-standards.md).
"""

import h11

_START = b"HTTP/"


class SecondReading:
    """Reads one answer.  What came of it: `status` (0: nothing yet), `headers`, `body`, `complete`, `refusal`."""

    def __init__(self, limit: int, final: frozenset[int]) -> None:
        """`limit`: of the bytes of a head.  `final`: interim statuses that count as the answer."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.complete = False
        self.refusal = ""  # why it is not a valid HTTP/1.1 answer
        self._final = final
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=limit)
        for event in (h11.Request(method="POST", target="/", headers=[("Host", "")]), h11.EndOfMessage()):
            self._connection.send(event)

    def feed(self, data: bytes) -> None:
        """Take more bytes; the first ones are those that the answer begins with."""
        try:
            self._connection.receive_data(data)
            while not self.complete and self._take(self._connection.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self.complete = bool(self.status)  # the body is invalid; the status remains
            self.refusal = "" if self.status else str(error)

    def _take(self, event: object) -> bool:
        """Whether another event may follow."""
        if isinstance(event, h11.Response) or (
            isinstance(event, h11.InformationalResponse) and event.status_code in self._final
        ):
            self.status = event.status_code
            self.headers = dict(event.headers)
            self.complete = isinstance(event, h11.InformationalResponse)
        elif isinstance(event, h11.Data):
            self.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self.complete = True
        return event is not h11.NEED_DATA and event is not h11.PAUSED


def looks_like_http(head: bytes) -> bool:
    """Whether bytes begin as an answer of HTTP does; otherwise nothing needs to read them again."""
    return head.startswith(_START)
