"""The server of a broker process.  Only this module uses uvicorn.

uvicorn runs the lifespan of the application, listens on the sockets, and stops when the process gets SIGTERM.  The
protocol of each connection is the broker's own (first_bytes.py).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from broker.net.first_bytes import METRICS, STOP_WAITING, MakeProtocol
from broker.net.http1.asgi import Application

GRACE_SECONDS = 3  # for calls in progress when the broker stops; waiting pulls are answered at once
ANSWERING_SECONDS = 2  # for the calls that are cancelled then
_POLL_SECONDS = 0.1  # how often a start that waits for the database checks whether to stop
_BACKLOG = 2048

logger = logging.getLogger(__name__)


async def _nothing() -> None:
    pass


class UvicornServer(uvicorn.Server):
    """Serves an application on the main socket, and beside it on one in cleartext and one for metrics, if given."""

    def __init__(
        self,
        app: Application,
        make_protocol: MakeProtocol,
        *,
        cleartext: socket.socket | None = None,
        metrics: socket.socket | None = None,
        serving: Callable[[], None] = lambda: None,
        stopped: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """`serving()` is called once all sockets are served; `stopped()` after the last connection is closed."""
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=cast(type[asyncio.Protocol], self._make_connection),
                ws="none",
                proxy_headers=False,
                lifespan="on",
                access_log=False,
                log_config=None,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=GRACE_SECONDS + ANSWERING_SECONDS,
                date_header=False,
                server_header=False,
            )
        )
        self._make_protocol = make_protocol
        self._cleartext = cleartext
        self._metrics = metrics
        self._serving = serving
        self._stopped = stopped

    def _make_connection(
        self, *, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], **_: Any
    ) -> asyncio.Protocol:
        """Takes uvicorn's arguments for a protocol, and calls `MakeProtocol`."""
        return self._connection(config, server_state, app_state, cleartext=False)

    def _connection(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], *, cleartext: bool
    ) -> asyncio.Protocol:
        return self._make_protocol(
            app=cast(Application, config.loaded_app),
            state=app_state,
            connections=cast(set[Any], server_state.connections),
            tasks=server_state.tasks,
            cleartext=cleartext,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        starting = asyncio.ensure_future(self._start(sockets))
        while not starting.done():
            await asyncio.wait((starting,), timeout=_POLL_SECONDS)
            if self.should_exit and not self.started:  # it may be waiting for the database; nothing has begun
                return
        if exit_ := await starting:
            raise exit_
        if self.started:
            self._serving()

    async def _start(self, sockets: list[socket.socket] | None) -> SystemExit | None:
        """Returns the exit of a start that failed; raised in a task it would leave the event loop as it is."""
        try:
            with _silent():  # the parent process reports it
                await super().startup(sockets)
            if self.started and self._cleartext is not None:
                await self._serve_in_cleartext(self._cleartext)
            if self.started and self._metrics is not None:
                await self._serve_metrics(self._metrics)
        except SystemExit as exit_:
            return exit_
        return None

    async def _serve_in_cleartext(self, listener: socket.socket) -> None:
        def connection() -> asyncio.Protocol:
            return self._connection(self.config, self.server_state, self.lifespan.state, cleartext=True)

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connection, sock=listener, backlog=self.config.backlog))

    async def _serve_metrics(self, listener: socket.socket) -> None:
        """Serves metrics with uvicorn's own protocol, which knows neither REST nor gRPC."""
        config = uvicorn.Config(
            self.lifespan.state[METRICS],
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
        )
        config.load()

        def connection() -> asyncio.Protocol:
            make = cast(Callable[..., asyncio.Protocol], config.http_protocol_class)
            return make(config=config, server_state=self.server_state, app_state={})

        self.servers.append(await asyncio.get_running_loop().create_server(connection, sock=listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Otherwise a waiting pull would keep its connection, and with it the broker, until the end of its wait.
        if stop_waiting := self.lifespan.state.get(STOP_WAITING):
            stop_waiting()
        giving_up = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cancel_calls)
        await super().shutdown(sockets)
        giving_up.cancel()
        await self._stopped()  # here, because uvicorn then ends the process by the signal that stopped it

    def _cancel_calls(self) -> None:
        """Cancels the calls before uvicorn does, which would log an error: the database may be away."""
        if tasks := list(self.server_state.tasks):
            logger.warning("%d calls had no answer when the broker stopped", len(tasks))
        for task in tasks:
            task.cancel()  # REST and gRPC answer them


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drops what uvicorn logs within the block."""
    log = logging.getLogger("uvicorn.error")
    log.addFilter(_drop)
    try:
        yield
    finally:
        log.removeFilter(_drop)


def _drop(_: logging.LogRecord) -> bool:
    return False
