"""TLS between a transport of the event loop and a protocol of this port.  It buffers nothing.

It provides what the limits of a port need and the event loop's own TLS does not offer: a peer that does not read is
detected by the unsent bytes in the socket's transport, as without TLS; one direction can be closed before the
other; and the first bytes can be inspected before TLS begins (docs/decisions/0021-tls-over-the-ports-transport.md).
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any

_RECORD_BYTES = 16_384  # the maximum of a record
_PIECE_BYTES = 65_536  # encrypted or decrypted at a time: OpenSSL's buffers grow and stay at their maximum


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of `transport`, and the transport of a protocol that hears and writes plain bytes.

    The handshake is done.  An end of the connection that the peer did not announce is as one that it did: the
    protocols above know by their own framing what is whole.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._protocol: asyncio.Protocol = asyncio.Protocol()
        self._said_goodbye = False

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Tell a protocol of its connection, and of what came with the end of the handshake."""
        self._protocol = protocol
        self._transport.set_protocol(self)
        protocol.connection_made(self)
        self.data_received(b"")

    # --- what the transport below calls ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._said_goodbye:
            return  # the data is not needed
        parts: list[bytes] = []
        is_over = self._decrypt(data, parts)
        if self._outgoing.pending:  # the answer to a key update, or an alert
            self._transport.write(self._outgoing.read())
        if parts:
            self._protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if is_over and not self._transport.is_closing():
            self.eof_received()

    def _decrypt(self, data: bytes, parts: list[bytes]) -> bool:
        """Whether nothing more will come."""
        view = memoryview(data)
        for at in range(0, max(len(view), 1), _PIECE_BYTES):
            self._incoming.write(view[at : at + _PIECE_BYTES])
            try:
                while part := self._tls.read(_RECORD_BYTES):
                    parts.append(part)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:  # not a TLS record, or a modified one
                self._said_goodbye = True
            return True
        return False

    def eof_received(self) -> bool | None:
        if not self._protocol.eof_received():
            self.close()
        return False

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._said_goodbye = True
        protocol, self._protocol = self._protocol, asyncio.Protocol()  # otherwise each would keep the other alive
        protocol.connection_lost(exc)

    # --- what the protocol above calls -------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._said_goodbye and data:
            self._seal(data)

    def _seal(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        try:
            for at in range(0, len(view), _PIECE_BYTES):
                self._tls.write(view[at : at + _PIECE_BYTES])
                self._transport.write(self._outgoing.read())
        except ssl.SSLError:  # the peer has violated the protocol
            self.abort()

    def write_eof(self) -> None:
        """Say that nothing more is written; what still comes is dropped."""
        self._say_goodbye()
        if not self._transport.is_closing():
            self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._transport.is_closing():
            self._say_goodbye()
            self._transport.close()

    def _say_goodbye(self) -> None:
        if self._said_goodbye:
            return
        self._said_goodbye = True
        with suppress(ssl.SSLError):  # the peer has not closed it as well, or has sent more data
            self._tls.unwrap()
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
