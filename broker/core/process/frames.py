"""What a broker and the processes that do for it what could cost much tell each other: a length, then so much."""

import struct
from collections.abc import Callable

LENGTH = struct.Struct("!I")


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def unframed(read: Callable[[int], bytes]) -> bytes:
    """The next; empty at the end."""
    header = read(LENGTH.size)
    return read(LENGTH.unpack(header)[0]) if len(header) == LENGTH.size else b""
