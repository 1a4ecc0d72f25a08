"""Answers that nobody reads: 100 connections list a topic with three messages of 5 MB, over and over."""

import asyncio
import socket
from collections.abc import Callable

from benchmarks.attacks.caller import Caller, build_call

_CONNECTIONS = 100
_MESSAGES, _DATA = 3, "eHh4" * 1_666_667  # 5 MB each
_TOPIC = "projects/greedy/topics/answers"
_FULL_FORCE = 60  # answers or refusals
_HELD_SECONDS = 100.0  # shorter than the broker's patience
_AGAIN_SECONDS = 0.1  # after a refusal
_STATUS = b"HTTP/1.1 200"


async def unread_answers(host: str, port: int, ready: Callable[[], None]) -> None:
    """Each reads the status of an answer and nothing more; after a refusal it tries again."""
    caller = Caller(host, port)
    await caller.call("PUT", _TOPIC, {"messageRetentionDuration": "3600s"})
    for _ in range(_MESSAGES):
        await caller.call("POST", f"{_TOPIC}:publish", {"messages": [{"data": _DATA}]})
    answered = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_ask_for_ever(host, port, answered)) for _ in range(_CONNECTIONS)]
    for _ in range(_FULL_FORCE):
        await answered.acquire()
    ready()
    await asyncio.gather(*tasks)


async def _ask_for_ever(host: str, port: int, answered: asyncio.Semaphore) -> None:
    loop, request = asyncio.get_running_loop(), build_call("GET", f"{_TOPIC}/messages")
    while True:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.setblocking(False)
            await loop.sock_connect(connection, (host, port))
            await loop.sock_sendall(connection, request)
            status = await loop.sock_recv(connection, len(_STATUS))
            answered.release()
            await asyncio.sleep(_HELD_SECONDS if status == _STATUS else _AGAIN_SECONDS)
