"""Whoever connects while nobody serves is answered, also at the moment when somebody serves again."""

import asyncio
import socket

import pytest

from broker.net.turning_away import turning_away
from tests.fixtures.broker import PATIENCE_SECONDS

_REQUEST = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize("steps", range(8))
async def test_a_connection_at_the_end_is_answered_or_left_for_whoever_serves_next(
    steps: int,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with turning_away(listener, "nobody serves", alive=False):
            await asyncio.sleep(0.01)  # it waits for connections
            client = socket.create_connection(listener.getsockname())
            client.sendall(_REQUEST)
            for _ in range(steps):
                await asyncio.sleep(0)
        with client:
            try:
                left, _ = listener.accept()
            except BlockingIOError:
                assert (await _first_bytes(client)).startswith(b"HTTP/1.1 503")
            else:
                left.close()


async def _first_bytes(client: socket.socket) -> bytes:
    client.setblocking(False)
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.get_running_loop().sock_recv(client, 100)
