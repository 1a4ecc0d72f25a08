"""How large a request may be, whatever it says."""

import zlib

from broker.domain.errors import BrokerError, InvalidArgument

MAX_PAYLOAD_BYTES = 10_485_760  # decompressed; Google's limit of a request's JSON or protobuf
MAX_MEMBERS = 10_000  # of gzip; each costs some microseconds, and 10 MB hold half a million empty ones

_EITHER_HEADER, _GZIP_HEADER = zlib.MAX_WBITS | 32, zlib.MAX_WBITS | 16
_FIRST_PIECE = 512  # bytes; what zlib does not use of a piece it copies


def payload_too_large() -> InvalidArgument:
    return InvalidArgument(f"Request payload size exceeds the limit: {MAX_PAYLOAD_BYTES} bytes.")


def decompressed(payload: bytes, invalid: type[BrokerError], description: str) -> bytes:
    """What gzip or zlib has compressed, no further than to the limit.

    gzip may have any number of members up to MAX_MEMBERS, one after the other (RFC 1952, 2.2).  Raises `invalid`,
    with `description` as the beginning of its message, for what is neither or ends early; InvalidArgument past the
    limit.
    """
    plain = bytearray()
    at = members = 0
    while at < len(payload) or not members:
        if members == MAX_MEMBERS:
            raise invalid(f"{description}: it has more than {MAX_MEMBERS} members.")
        if members and payload[:1] != b"\x1f":
            raise invalid(f"{description}: something follows its end.")
        members += 1
        try:
            at = _inflate_member(payload, at, plain, _GZIP_HEADER if members > 1 else _EITHER_HEADER)
        except (zlib.error, EOFError) as error:
            early = ": it ends early" if isinstance(error, EOFError) else ""
            raise invalid(f"{description}{early}.") from error
    return bytes(plain)


def _inflate_member(payload: bytes, at: int, plain: bytearray, header: int) -> int:
    """Add to `plain` what the member that begins there holds; returns where it ends.

    Raises zlib.error, EOFError, InvalidArgument.
    """
    decompressor = zlib.decompressobj(wbits=header)
    size = _FIRST_PIECE
    while not decompressor.eof:
        piece = payload[at : at + size]
        if not piece:
            raise EOFError
        plain += decompressor.decompress(piece, MAX_PAYLOAD_BYTES + 1 - len(plain))
        if len(plain) > MAX_PAYLOAD_BYTES:
            raise payload_too_large()
        at += len(piece) - len(decompressor.unused_data) - len(decompressor.unconsumed_tail)
        size *= 2
    return at
