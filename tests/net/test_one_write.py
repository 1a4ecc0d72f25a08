"""Responses on the wire: head and body in one packet, and the cases without a body."""

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest


@pytest.fixture
def caller(broker_url: str) -> Iterator[socket.socket]:
    url = urlsplit(broker_url)
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        yield connection


def _request(method: str, path: str, *headers: str, body: str = "") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


def _responses(caller: socket.socket, count: int) -> list[bytes]:
    """So many responses, each with its head."""
    responses = []
    received = b""
    while len(responses) < count:
        head, end, rest = received.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)|$", head)[1] or 0) if end else 0  # type: ignore[index]
        if end and len(rest) >= length:
            responses.append(head + end + rest[:length])
            received = rest[length:]
        else:
            part = caller.recv(65536)
            assert part, received
            received += part
    assert not received
    return responses


def test_a_response_comes_in_one_packet(caller: socket.socket) -> None:
    for _ in range(20):
        caller.sendall(_request("GET", "/v1/projects/none/topics"))
        head, _, body = caller.recv(65536).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert f"content-length: {len(body)}".encode() in head
        assert body


def test_pipelined_requests_are_answered_in_order(caller: socket.socket) -> None:
    caller.sendall(_request("GET", "/v1/projects/p/nothing") + _request("GET", "/v1/projects/p/topics"))
    refused, listed = _responses(caller, 2)
    assert refused.startswith(b"HTTP/1.1 404 ")
    assert listed.startswith(b"HTTP/1.1 200 ")


def test_an_answer_without_a_body_is_sent_all_the_same(caller: socket.socket) -> None:
    caller.sendall(_request("HEAD", "/healthz"))
    assert caller.recv(65536).endswith(b"\r\n\r\n")


def test_the_last_answer_of_a_connection_is_sent_before_it_is_closed(caller: socket.socket) -> None:
    caller.sendall(_request("HEAD", "/healthz", "Connection: close"))
    received = b""
    while part := caller.recv(65536):
        received += part
    assert received.startswith(b"HTTP/1.1 ")
    assert received.endswith(b"\r\n\r\n")


def test_a_caller_that_asks_first_is_told_to_continue(caller: socket.socket) -> None:
    request = _request("GET", "/v1/projects/p/topics", "Expect: 100-continue", body="{}")
    caller.sendall(request.removesuffix(b"{}"))
    assert caller.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    caller.sendall(b"{}")
    assert _responses(caller, 1)[0].startswith(b"HTTP/1.1 200 ")
