"""Limits the size of a request, whatever size it declares, and decompresses it."""

import zlib
from collections.abc import Callable, Generator
from contextlib import suppress

from broker.model.errors import BrokerError, InvalidArgument

MAX_PAYLOAD_BYTES = 10_485_760  # decompressed; Google's limit of a request's JSON or protobuf
MAX_MEMBERS = 10_000  # of gzip; each costs some microseconds, and 10 MB can contain half a million empty ones
MAX_RATIO = 200  # decompressed bytes for each compressed one, beyond FREE_BYTES; zlib reaches 1,032
FREE_BYTES = 1_048_576  # decompressed bytes that any compressed payload may have

_EITHER_HEADER, _GZIP_HEADER = zlib.MAX_WBITS | 32, zlib.MAX_WBITS | 16
_FIRST_PIECE = 512  # bytes; zlib copies the unused rest of a piece
_FIRST_STEP = 16_384  # decompressed at once, because it takes no longer than waiting for a turn
_STEP = 400_000  # decompressed bytes between two turns of the event loop: a millisecond or less
_MEMBER_COST = 1_000  # the cost of starting a member, in decompressed bytes


def payload_too_large(most: int = MAX_PAYLOAD_BYTES) -> InvalidArgument:
    return InvalidArgument(f"Request payload size exceeds the limit: {most} bytes.")


def decompress(
    payload: bytes,
    invalid: type[BrokerError],
    description: str,
    *,
    most: int = MAX_PAYLOAD_BYTES,
    grown: Callable[[int], object] = lambda size: None,
) -> Generator[int, None, bytes]:
    """Decompress gzip or zlib in steps; yields before each but the first how many bytes it makes at most.

    gzip may have any number of members up to MAX_MEMBERS, one after the other (RFC 1952, 2.2).  `grown` is called
    with the bytes that each step has made, and may raise.  Raises `invalid`, with `description` as the beginning of
    its message, for what is neither gzip nor zlib or ends early; InvalidArgument beyond `most` bytes, or beyond
    MAX_RATIO.
    """
    limit = min(most, max(FREE_BYTES, MAX_RATIO * len(payload)))
    reading = _Decompression(payload, invalid, description)
    step = _FIRST_STEP
    while True:
        before = len(reading.plain)
        is_over = reading.advance(step, limit)
        grown(len(reading.plain) - before)
        if len(reading.plain) > most:
            raise payload_too_large(most)
        if len(reading.plain) > limit:
            raise InvalidArgument(
                f"The compressed request becomes more than {MAX_RATIO} times as large ({len(payload)} bytes become "
                f"more than {limit}); beyond {FREE_BYTES} bytes that is the maximum."
            )
        if is_over:
            return bytes(reading.plain)
        step = _STEP
        yield step


def beginning_of(payload: bytes, size: int) -> bytes:
    """Returns up to `size` first bytes of what was compressed; fewer if `payload` is cut off, or not valid."""
    reading = _Decompression(payload, InvalidArgument, "")
    with suppress(InvalidArgument):
        while len(reading.plain) < size and not reading.advance(size - len(reading.plain), size):
            pass
    return bytes(reading.plain[:size])


class _Decompression:
    """`plain` is what has been made so far."""

    def __init__(self, payload: bytes, invalid: type[BrokerError], description: str) -> None:
        self.plain = bytearray()
        self._payload = payload
        self._invalid = invalid
        self._description = description
        self._at = self._members = 0
        self._piece = _FIRST_PIECE
        self._member: zlib._Decompress | None = None

    def advance(self, step: int, limit: int) -> bool:
        """Make about `step` bytes more, and stop just past `limit` in all; returns whether it is all."""
        left = step
        while left > 0:
            if self._member is None:
                if self._members and self._at >= len(self._payload):
                    return True
                self._begin_member()
                left -= _MEMBER_COST
            try:
                made = self._inflate(min(max(left, 1), limit + 1 - len(self.plain)))
            except (zlib.error, EOFError) as error:
                early = ": it ends early" if isinstance(error, EOFError) else ""
                raise self._invalid(f"{self._description}{early}.") from error
            left -= made
            if len(self.plain) > limit:
                return False
        return self._member is None and self._at >= len(self._payload)

    def _begin_member(self) -> None:
        if self._members == MAX_MEMBERS:
            raise self._invalid(f"{self._description}: it has more than {MAX_MEMBERS} members.")
        if self._members and self._payload[:1] != b"\x1f":
            raise self._invalid(f"{self._description}: something follows its end.")
        self._members += 1
        self._piece = _FIRST_PIECE
        self._member = zlib.decompressobj(wbits=_GZIP_HEADER if self._members > 1 else _EITHER_HEADER)

    def _inflate(self, most: int) -> int:
        """Decompress the next piece, to `most` bytes; returns how many it made.  Raises zlib.error, EOFError."""
        member = self._member
        assert member is not None
        piece = self._payload[self._at : self._at + self._piece]
        plain = member.decompress(piece, most)
        if not (piece or plain or member.eof):
            raise EOFError
        self.plain += plain
        # After the end zlib may have the same bytes in `unconsumed_tail` as well.
        self._at += len(piece) - len(member.unused_data if member.eof else member.unconsumed_tail)
        self._piece *= 2
        if member.eof:
            self._member = None
        return len(plain)
