"""The framing of messages between a broker and its helper processes: a length, then that many bytes."""

import struct
from collections.abc import Callable

LENGTH = struct.Struct("!I")


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def unframed(read: Callable[[int], bytes]) -> bytes:
    """The next; empty at the end."""
    header = read(LENGTH.size)
    return read(LENGTH.unpack(header)[0]) if len(header) == LENGTH.size else b""
