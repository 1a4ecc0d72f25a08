"""The TLS handshake of a connection, and the error for clients that do not speak TLS.

connected ──a record of TLS──► shaking hands ──done──► TlsTransport, with the protocol above it
   │                              └── too slow, or a mistake ──► closed
   └── a request in cleartext ──► told so ──► closed
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from broker.net.limits.open_connections import OpenConnections, address_in
from broker.net.tls.transport import TlsTransport

HANDSHAKE_SECONDS = 10.0  # from connecting to the end of the handshake
LINGER_SECONDS = 1.0  # for a client that sent cleartext to read the answer
MAX_HANDSHAKE_BYTES = 131_072  # from a client; a certificate chain has some thousands
_RECORD = 0x16  # the first byte of a handshake: https://www.rfc-editor.org/rfc/rfc8446#section-5.1


class HandshakeTurns:
    """The turns of TLS handshakes: one step each time the event loop comes round, from each address in turn.

    Signing takes up to a millisecond.  So a flood of clients that connect leaves turns to connected clients, and to
    those that connect from other addresses.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # by address, in the order of their turns

    def ask(self, address: str, step: Callable[[], None]) -> None:
        """Run it when it is its turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.setdefault(address, deque()).append(step)

    def _turn(self) -> None:
        address = next(iter(self._waiting))
        steps = self._waiting.pop(address)
        step = steps.popleft()
        if steps:
            self._waiting[address] = steps  # after the others
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        step()


class TlsHandshake(asyncio.Protocol):
    """`begin(agreed)` makes the protocol behind TLS; `agreed`: what client and server agreed on by ALPN, or None.
    `cleartext_answer` is the whole response to a request in cleartext.

    It keeps itself among `connections`, which the server shuts down when it stops, until the handshake is done.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        turns: HandshakeTurns,
        connections: OpenConnections,
        begin: Callable[[str | None], asyncio.Protocol],
        *,
        cleartext_answer: bytes,
        seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._turns = turns
        self._connections = connections
        self._begin = begin
        self._cleartext_answer = cleartext_answer
        self._seconds = seconds
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._context = context
        self._tls: ssl.SSLObject | None = None  # set from the first byte on
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = address_in(transport.get_extra_info("peername"))
        if not self._connections.has_capacity(self.address):
            self._transport.abort()
            return
        self._connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._tls is None:
            if data[0] != _RECORD:
                self._refuse_cleartext(data)
                return
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._received += len(data)
        if self._received > MAX_HANDSHAKE_BYTES:
            self._transport.abort()
            return
        self._incoming.write(data)
        self._transport.pause_reading()
        self._turns.ask(self.address, self._step)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def shutdown(self) -> None:
        """Aborts the connection, on which no request can be open yet."""
        self._transport.abort()

    def _leave(self) -> None:
        self._is_over = True
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _step(self) -> None:
        if self._is_over or self._transport.is_closing():
            return
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._transport.resume_reading()
        except ssl.SSLError:  # including an invalid certificate; the alert reports it
            self._flush()
            self._transport.close()
        else:
            self._flush()
            self._hand_over(self._tls)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _hand_over(self, tls: ssl.SSLObject) -> None:
        self._leave()
        self._transport.resume_reading()  # before the protocol above may pause it
        transport = TlsTransport(self._transport, tls, self._incoming, self._outgoing)
        transport.begin(self._begin(tls.selected_alpn_protocol()))

    def _refuse_cleartext(self, data: bytes) -> None:
        """Refuses cleartext.  A client of HTTP/1.1 reads an answer; for another one the connection just ends."""
        self._is_over = True
        if not data[:1].isalpha() or data.startswith(b"PRI "):
            self._transport.abort()
            return
        self._transport.write(self._cleartext_answer)
        self._transport.write_eof()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)
