"""Header blocks (RFC 7541): requests are decoded by the hpack package, responses are encoded here.

Responses use no dynamic table: their few headers are constants, encoded once.  The requests of a client mostly
repeat the same block of indexes; its decoded headers are cached for as long as the dynamic table does not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpack import Decoder, HPACKDecodingError, HPACKError
from hpack.table import HeaderTable

from broker.net.http2.frames import Code, ConnectionFault

MAX_BLOCK_BYTES = 65_536  # as sent
MAX_LIST_BYTES = 65_536  # decoded, with 32 bytes for each header (RFC 9113, section 6.5.2)
NO_TABLE = b"\x20"  # the first byte of a header block if the encoder uses no dynamic table (RFC 7541, section 6.3)

_REMEMBERED = 128  # blocks
_MAX_REMEMBERED_BYTES = 4_096  # of such a block, and of its decoded headers
_MAX_RESIZES = (
    2  # of the table in a block: its least size since the last block, and its last (RFC 7541, section 4.2)
)
_STATUS = b":status"
_CONNECTION_HEADERS = {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
_PSEUDO_HEADERS = {b":method", b":scheme", b":path", b":authority"}
_REQUIRED = {b":method", b":scheme", b":path"}


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """`is_malformed`: RFC 9113, section 8.1.1.  Of a header that is repeated `fields` has all, commas between.
    `size`: what they count against MAX_LIST_BYTES.
    """

    fields: Mapping[bytes, bytes] = field(default_factory=dict)
    is_malformed: bool = False
    size: int = 0


class _Table(HeaderTable):
    """Knows how many entries were added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.additions = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.additions += 1
        super().add(name, value)


class HeaderDecoder:
    """The header blocks of one connection, in the order in which they came."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_LIST_BYTES)
        self._table = self._decoder.header_table = _Table()
        self._remembered: dict[bytes, RequestHeaders] = {}

    def decode(self, block: bytes) -> RequestHeaders:
        """Raises ConnectionFault for a block that cannot be read: those that follow could not be either."""
        known = self._remembered.get(block)
        if known is not None:
            return known
        before, resizes = self._table.additions, _resizes(block)
        try:
            if resizes > _MAX_RESIZES:
                raise HPACKDecodingError("The table is resized too often.")
            pairs = [(bytes(pair[0]), bytes(pair[1])) for pair in self._decoder.decode(block, raw=True)]
        except (HPACKError, IndexError) as error:
            raise ConnectionFault(Code.COMPRESSION_ERROR, "a header block cannot be read") from error
        headers = _request_headers(pairs)
        if resizes or self._table.additions != before:
            self._remembered.clear()
        elif len(self._remembered) < _REMEMBERED and _is_small(block, headers):
            self._remembered[block] = headers
        return headers


def _resizes(block: bytes) -> int:
    """Counts how often a block resizes the table, up to one more than is allowed.

    Each resize is a byte, and costs as much as a header.  Resizes are at the beginning of a block, or hpack refuses
    it (RFC 7541, sections 4.2 and 6.3).
    """
    count = at = 0
    while at < len(block) and block[at] & 0xE0 == 0x20 and count <= _MAX_RESIZES:
        count += 1
        goes_on = block[at] & 0x1F == 0x1F
        while goes_on and at + 1 < len(block):
            at += 1
            goes_on = block[at] >= 0x80
        at += 1
    return count


def _is_small(block: bytes, headers: RequestHeaders) -> bool:
    return max(len(block), headers.size) <= _MAX_REMEMBERED_BYTES


def _request_headers(pairs: list[tuple[bytes, bytes]]) -> RequestHeaders:
    fields: dict[bytes, bytes] = {}
    regular = False
    for name, value in pairs:
        if name.startswith(b":"):
            if regular or name not in _PSEUDO_HEADERS or name in fields:
                return RequestHeaders(is_malformed=True)
        else:
            regular = True
            if name != name.lower() or not name or name in _CONNECTION_HEADERS:
                return RequestHeaders(is_malformed=True)
            if name == b"te" and value != b"trailers":
                return RequestHeaders(is_malformed=True)
        fields[name] = fields[name] + b"," + value if name in fields else value
    return RequestHeaders(fields, is_malformed=not fields.keys() >= _REQUIRED, size=list_size(*fields.items()))


def encode_headers(*headers: tuple[bytes, bytes]) -> bytes:
    """A header block of literals that no table remembers.  `:status` may be the first of them."""
    parts = []
    for name, value in headers:
        if name == _STATUS:
            parts.append(b"\x88" if value == b"200" else b"\x08" + _text(value))
        else:
            parts.append(b"\x00" + _text(name) + _text(value))
    return b"".join(parts)


def list_size(*headers: tuple[bytes, bytes]) -> int:
    """Returns the size of headers that counts against a peer's MAX_HEADER_LIST_SIZE."""
    return sum(len(name) + len(value) + 32 for name, value in headers)


def _text(value: bytes) -> bytes:
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    rest, prefix = length - 127, bytearray((127,))
    while rest >= 128:
        prefix.append(rest & 127 | 128)
        rest >>= 7
    prefix.append(rest)
    return bytes(prefix) + value
