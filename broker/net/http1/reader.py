"""Parses requests of HTTP/1.1 (RFC 9112) by httptools, and refuses those that violate the specification.

    idle ──on_message_begin──► head ──on_headers_complete──► body ──on_message_complete──► idle, and so on

Everything except the body is limited here: request lines, headers, trailers, extensions of chunks, empty lines.
"""

from typing import Protocol

import httptools

from broker.net.http1.head import Head

MAX_HEAD_BYTES = 65_536  # of a request, for everything except the body
MAX_HEADERS = 256
MAX_URL_BYTES = 16_384  # Google's clients stay far below and send longer requests as a POST
IDLE, HEAD, BODY = range(3)  # phases; an Enum's members cost a call each, several times a request

_SPECIAL_HEADERS = frozenset(
    [b"host", b"content-length", b"content-encoding", b"expect", b"transfer-encoding", b"upgrade"]
)
_TOO_MANY_HEADERS = f"The request has more than {MAX_HEADERS} headers."


class Refusal(Exception):
    """Why the request that is being read is refused: a status of HTTP and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Requests(Protocol):
    """The interface that receives the requests of a connection."""

    def request_begun(self, head: Head) -> None: ...
    def body_came(self, piece: bytes) -> None: ...
    def request_ended(self) -> None: ...


class RequestReader:
    """The requests of one connection, in the order in which they come.  A Refusal, or the last request, ends it."""

    head: Head  # of the newest request

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._parser = httptools.HttpRequestParser(self)
        self.phase = IDLE
        self.number = 0  # the number of requests that have begun
        self.left = 0  # of a body with a given length
        self.is_over = False  # the client has announced that this is the last request
        self._quiet = 0  # bytes since the last byte of a body, or since the beginning or end of a request
        self._fault: Refusal | None = None
        self._by_hand = False  # a body is read here instead of by the parser

    def feed(self, data: bytes | memoryview) -> None:
        """Raises Refusal; nothing more is read then."""
        if self._by_hand:
            taken, data = data[: self.left], data[self.left :]
            self._take_body(bytes(taken))
        if self.is_over or not data:
            return
        self._quiet += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.feed(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._on_error(error)
        else:
            self._check_bounds()

    def _on_error(self, error: httptools.HttpParserError) -> None:
        if self._fault is not None:
            raise self._fault from None
        if isinstance(error, httptools.HttpParserCallbackError):
            raise error  # a defect of ours
        if not self.is_over:
            raise Refusal(400, f"The request is not valid HTTP/1.1: {error}.") from None

    def _check_bounds(self) -> None:
        if self.phase == HEAD and len(self._headers) > MAX_HEADERS:
            raise Refusal(431, _TOO_MANY_HEADERS)
        if self._quiet > MAX_HEAD_BYTES:
            raise Refusal(431, f"The head of the request is longer than {MAX_HEAD_BYTES} bytes.")

    def _object(self, status: int, reason: str) -> None:
        """Refuse the request that is being read, by an error of the parser."""
        self._fault = Refusal(status, reason)
        raise self._fault

    # --- what the parser calls ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.phase = HEAD
        self.number += 1
        self._quiet = self.left = self._hosts = 0
        self._chunked = self._upgrade = self._expects_continue = False
        self._url = self._encoding = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > MAX_URL_BYTES:
            self._object(414, f"The URL of the request is longer than {MAX_URL_BYTES} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase == BODY:
            return  # a trailer
        name = name.lower()
        if name in _SPECIAL_HEADERS:
            self._on_special_header(name, value)
        self._headers.append((name, value))

    def _on_special_header(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self.left = int(value)
        elif name == b"content-encoding":
            self._encoding = self._encoding or value
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        elif name == b"upgrade":
            self._upgrade = True
        elif self._chunked or value.strip().lower() != b"chunked":
            self._object(501, "The broker knows no transfer coding but one that is chunked, once.")
        else:
            self._chunked = True

    def on_headers_complete(self) -> None:
        version = self._parser.get_http_version()
        self._check_head(version)
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            self._object(400, "The request's target is not a valid URL.")
        path = url.path or b"/"
        if not path.isascii():
            self._object(400, "The path of the request is not ASCII.")
        head = self.head = Head(
            method=self._parser.get_method().decode("ascii"),
            path=path,
            query=url.query or b"",
            version=version,
            headers=self._headers,
            length=None if self._chunked else self.left,
            keep_alive=self._parser.should_keep_alive(),
            expects_continue=self._expects_continue and version == "1.1",
            encoding=self._encoding,
        )
        self.phase = BODY
        self._requests.request_begun(head)

    def _check_head(self, version: str) -> None:
        if version == "1.1":
            if self._hosts != 1:
                self._object(400, "A request of HTTP/1.1 has one Host header.")
        elif version != "1.0":
            self._object(505, f"The broker does not speak HTTP/{version}.")
        elif self._chunked:
            self._object(400, "A request of HTTP/1.0 cannot be chunked.")
        if len(self._headers) > MAX_HEADERS:
            self._object(431, _TOO_MANY_HEADERS)
        if self._parser.get_method() == b"CONNECT":  # the parser would take its body for the next request
            self._object(501, "The broker is no proxy: it opens no tunnels.")
        if self._upgrade and self._chunked and self._parser.should_upgrade():
            self._object(501, "The broker reads no chunked request that asks for another protocol.")

    def on_body(self, body: bytes) -> None:
        self._quiet = 0
        self.left -= len(body)
        self._requests.body_came(body)

    def _take_body(self, body: bytes) -> None:
        """Takes the body of a request to upgrade.

        At its head the parser stops, as if the body were the other protocol's.  Clients in Java ask for h2c, for
        instance.  A server is free to stay with the protocol that it speaks.
        """
        self.on_body(body)
        if not self.left:
            self._by_hand = False
            self.on_message_complete()

    def on_message_complete(self) -> None:
        if self._upgrade and self.left > 0:
            self._by_hand = True
            return
        self.phase = IDLE
        self._quiet = 0
        self.is_over = not self.head.keep_alive
        self._requests.request_ended()
