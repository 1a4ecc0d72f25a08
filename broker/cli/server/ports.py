"""The listening sockets of a broker, and their protocols.  The parent opens them, and all its processes accept from
them.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

from broker.app.settings.fields import Settings
from broker.cli.server.service_manager import CLEARTEXT, MAIN, METRICS
from broker.net.listener import CannotListen, bound_socket, listen
from broker.net.tls.material import TlsMaterial, make_context
from broker.net.turning_away import turning_away


@dataclass(frozen=True, slots=True)
class Ports:
    """`main` speaks TLS if there is `tls`; `cleartext`, if there is one beside it, never does.  `metrics` serves
    nothing but what was counted.
    """

    main: socket.socket
    cleartext: socket.socket | None = None
    tls: TlsMaterial | None = None
    metrics: socket.socket | None = None

    @property
    def is_secure(self) -> bool:
        """Whether the main one speaks TLS."""
        return self.tls is not None

    @property
    def sockets(self) -> list[socket.socket]:
        """The sockets that serve the API."""
        return [self.main] if self.cleartext is None else [self.main, self.cleartext]

    @property
    def _all(self) -> list[socket.socket]:
        return self.sockets if self.metrics is None else [*self.sockets, self.metrics]

    def speaks_tls(self, listener: socket.socket) -> bool:
        return listener is self.main and self.is_secure

    def listen(self) -> None:
        """Let connections come.  Raises CannotListen."""
        for listener in self._all:
            listen(listener)

    @asynccontextmanager
    async def turning_away(self, reason: str, *, alive: bool) -> AsyncIterator[None]:
        """Answers requests within the block that no worker serves; `alive`: the answer of /healthz."""
        context: ssl.SSLContext | None = make_context(self.tls) if self.tls else None
        async with AsyncExitStack() as stack:
            for listener in self._all:
                tls = context if listener is self.main else None
                await stack.enter_async_context(turning_away(listener, reason, alive=alive, tls=tls))
            yield


@contextmanager
def bound_ports(
    settings: Settings, tls: TlsMaterial | None, handed_over: Mapping[str, socket.socket]
) -> Iterator[Ports]:
    """Binds the sockets of the broker.  They refuse connections until `listen`.

    Connections to sockets that were handed over wait until then.  Raises CannotListen.
    """
    if CLEARTEXT in handed_over and tls is None:
        raise CannotListen(f"a socket {CLEARTEXT} is handed over, and the main one does not speak TLS")
    with ExitStack() as stack:
        for listener in handed_over.values():
            stack.enter_context(listener)
        main = handed_over.get(MAIN) or stack.enter_context(bound_socket(settings.host, settings.port))
        cleartext, metrics = handed_over.get(CLEARTEXT), handed_over.get(METRICS)
        if settings.cleartext_port and cleartext is None:
            bound = bound_socket(settings.cleartext_host, settings.cleartext_port, prefix="cleartext-")
            cleartext = stack.enter_context(bound)
        if settings.metrics_port and metrics is None:
            bound = bound_socket(settings.metrics_host, settings.metrics_port, prefix="metrics-")
            metrics = stack.enter_context(bound)
        yield Ports(main, cleartext, tls, metrics)
