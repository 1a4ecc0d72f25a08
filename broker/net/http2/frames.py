"""Frames of HTTP/2 (RFC 9113, sections 4 and 6): their constants and their encoding."""

import struct
from enum import IntEnum, IntFlag
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # the beginning of a client's connection
HEAD: Final = struct.Struct(">IBI")  # length (24 bits) and kind (8), flags, stream id
HEAD_BYTES: Final = 9
ID_MASK: Final = 0x7FFF_FFFF  # the first bit of a stream id, and of a window's increment, is reserved
MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_MAX_FRAME: Final = 16_384
LARGEST_MAX_FRAME: Final = 2**24 - 1
DEFAULT_HEADER_TABLE: Final = 4_096

U32: Final = struct.Struct(">I")
SETTING: Final = struct.Struct(">HI")


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(IntFlag):
    END_STREAM = 0x1  # of DATA and HEADERS
    ACK = 0x1  # of SETTINGS and PING
    END_HEADERS = 0x4
    PADDED = 0x8
    PRIORITY = 0x20


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Error codes (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """The peer broke a rule in a way that ends the connection."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamFault(Exception):
    """The peer broke a rule in a way that ends one stream."""

    def __init__(self, stream_id: int, code: Code) -> None:
        super().__init__(code.name)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def header_frames(stream_id: int, block: bytes, *, end_stream: bool, max_frame: int) -> bytes:
    """A header block as HEADERS, and CONTINUATION frames if it is larger than a frame may be."""
    end = Flag.END_STREAM if end_stream else 0
    if len(block) <= max_frame:
        return frame(Kind.HEADERS, end | Flag.END_HEADERS, stream_id, block)
    written = [frame(Kind.HEADERS, end, stream_id, block[:max_frame])]
    for at in range(max_frame, len(block), max_frame):
        last = Flag.END_HEADERS if at + max_frame >= len(block) else 0
        written.append(frame(Kind.CONTINUATION, last, stream_id, block[at : at + max_frame]))
    return b"".join(written)


def settings(values: dict[Setting, int]) -> bytes:
    return frame(Kind.SETTINGS, 0, 0, b"".join(SETTING.pack(key, value) for key, value in values.items()))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, U32.pack(increment))


def reset(stream_id: int, code: Code) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream_id, U32.pack(code))


def goaway(last_stream_id: int, code: Code, reason: str = "") -> bytes:
    return frame(Kind.GOAWAY, 0, 0, U32.pack(last_stream_id) + U32.pack(code) + reason.encode())


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding.  Raises ConnectionFault."""
    if not flags & Flag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]
