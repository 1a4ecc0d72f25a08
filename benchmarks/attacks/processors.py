"""Somebody else's work, which asks nothing of the broker: what a neighbour loses beside it is the machine's."""

import asyncio
import hashlib
import threading
from collections.abc import Callable
from functools import partial

_BYTES = bytes(16 * 1024 * 1024)  # a digest of them takes milliseconds, in which the interpreter's lock is free


async def busy_processors(threads: int, host: str, port: int, ready: Callable[[], None]) -> None:
    for _ in range(threads):
        threading.Thread(target=_work, daemon=True).start()
    ready()
    await asyncio.Event().wait()


def _work() -> None:
    while True:
        hashlib.sha256(_BYTES)


two_threads, eight_threads = partial(busy_processors, 2), partial(busy_processors, 8)
