"""HTTP/1.1 on a bare socket.

A client library costs as much processor time as the server under test, and load and server share a machine.  So
requests are built beforehand and answers are taken apart no further than their status, length and body.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_READ_BYTES = 262_144
_CREDENTIAL = "BENCHMARK_CREDENTIAL"
_TIMEOUT_SECONDS = 60.0  # for one read; longer than any answer takes that is worth measuring


class LoadFailed(Exception):
    """A server did not do what it was asked; the message says what it said."""


class Response(NamedTuple):
    status: int
    body: bytes


def shown_credential() -> str:
    """What requests show as `Authorization`; empty: nothing."""
    return os.environ.get(_CREDENTIAL, "")


@contextmanager
def showing(credential: str) -> Iterator[None]:
    """Requests that are built within the block, also by load processes that are started there, show it."""
    os.environ[_CREDENTIAL] = credential
    try:
        yield
    finally:
        del os.environ[_CREDENTIAL]


def build_request(method: str, path: str, body: bytes = b"{}") -> bytes:
    """A whole request, ready to be sent over and over.  `path` begins with a slash."""
    credential = shown_credential()
    shown = f"Authorization: {credential}\r\n" if credential else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"{shown}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One kept-alive connection; requests and answers alternate.  Not for several threads."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS)
        except OSError as error:
            raise LoadFailed(f"{host}:{port} cannot be reached: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()  # beyond what receive() has returned

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: bytes) -> bytes:
        """Send a request; the body of its answer.  Raises LoadFailed unless the answer is 200."""
        self.send(request)
        return self.receive()

    def send(self, request: bytes) -> None:
        """Raises LoadFailed."""
        try:
            self._socket.sendall(request)
        except OSError as error:
            raise LoadFailed(f"the server hung up: {error}") from error

    def receive(self) -> bytes:
        """The body of the next answer.  Raises LoadFailed unless it is 200."""
        status, body = self.receive_any()
        if status != 200:
            raise LoadFailed(f"{status} {body[:300].decode(errors='replace')}")
        return body

    def receive_any(self) -> Response:
        """The next answer, whatever its status.  Raises LoadFailed if none comes."""
        head = self._take_until(b"\r\n\r\n")
        status = int(head[9:12])
        if length := _LENGTH.search(head):
            return Response(status, self._take(int(length[1])))
        if not _CHUNKED.search(head):
            return Response(status, b"")
        return Response(status, b"".join(self._chunks()))

    def receive_size(self) -> int:
        """How large the next answer is, which is in chunks and is not kept.  Raises LoadFailed unless it is 200."""
        head = self._take_until(b"\r\n\r\n")
        if int(head[9:12]) != 200 or not _CHUNKED.search(head):
            raise LoadFailed(f"no long answer: {head[:300].decode(errors='replace')}")
        return sum(map(len, self._chunks()))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._take_until(b"\r\n").split(b";")[0], 16):
            yield self._take(size)
            self._take(2)
        self._take_until(b"\r\n")

    def _take_until(self, mark: bytes) -> bytes:
        while (end := self._received.find(mark)) < 0:
            self._fill()
        taken = bytes(self._received[:end])
        del self._received[: end + len(mark)]
        return taken

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            self._fill()
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _fill(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise LoadFailed(f"no answer: {error}") from error
        if not data:
            raise LoadFailed("the server closed the connection before its answer")
        self._received += data
