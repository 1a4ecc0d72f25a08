"""One broker process."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, cast

import uvicorn
import uvloop

from broker.app_config import AppConfig
from broker.asgi import METRICS, STOP_WAITING, create_app
from broker.cli.child_process import Disk, Failed, Outage, Renew, Serving
from broker.cli.ports import Ports
from broker.port.first_bytes import MakeProtocol
from broker.port.tls.material import ServerTls, TlsMaterial, UnusableTls
from broker.runtime.storage_alarm import StorageAlarm
from broker.telemetry.log import reason, set_up_log
from broker.telemetry.metrics.counters import Counters

if TYPE_CHECKING:
    from broker.telemetry.tracing import Tracing

OPEN_FILES = 65_536  # connections, of clients and to endpoints of pushes; 1,024 is the usual limit
LARGE_BLOCK_BYTES = 1 << 20
KEPT_BYTES = 4 << 20  # of smaller blocks that are free
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LOOK_SECONDS = 0.1  # between two looks whether to stop, as uvicorn's own
GRACE_SECONDS = 3  # for requests in flight when the broker stops; waiting pulls are answered at once
LAST_TRACES_SECONDS = 5  # for a collector to take what is left when the broker stops
ANSWERING_SECONDS = 2  # for what is given up then

_AWAY = "The broker cannot use its database yet, and its log has the reason; try again."

logger = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Says on the pipe when it serves; the parent prints the ready line.  Ends the waiting pulls when it stops."""

    def __init__(self, config: uvicorn.Config, pipe: Connection, ports: Ports, load_seconds: float) -> None:
        """`ports`: with those beside the main one."""
        super().__init__(config)
        self._began, self._load_seconds = time.monotonic(), load_seconds
        self._pipe = pipe
        self._ports = ports
        self.tracing: Tracing | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        starting = asyncio.ensure_future(self._start(sockets))
        while not starting.done():
            await asyncio.wait((starting,), timeout=_LOOK_SECONDS)
            if self.should_exit and not self.started:  # it may be waiting for the database; nothing has begun
                return
        if exit_ := await starting:
            raise exit_
        # What start-up made stays: the collector need not look at it again.  A pull makes thousands of objects that
        # end with its answer; at the default of 700 they would be searched for cycles again and again.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        if self.started:
            with contextlib.suppress(OSError):  # the parent is gone: _hear_parent hears of it too
                self._pipe.send(Serving(self._load_seconds, time.monotonic() - self._began))

    async def _start(self, sockets: list[socket.socket] | None) -> SystemExit | None:
        """uvicorn exits if it cannot start; raised in a task that would leave the event loop as it is."""
        try:
            with _unsaid():  # the parent says it
                await super().startup(sockets)
            if self.started and self._ports.cleartext is not None:
                await self._serve_in_cleartext(self._ports.cleartext)
            if self.started and self._ports.metrics is not None:
                await self._serve_metrics(self._ports.metrics)
        except SystemExit as exit_:
            return exit_
        return None

    async def _serve_in_cleartext(self, listener: socket.socket) -> None:
        def connection() -> asyncio.Protocol:
            make = cast(MakeProtocol, self.config.http_protocol_class)
            return make(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, cleartext=True
            )

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connection, sock=listener, backlog=self.config.backlog))

    async def _serve_metrics(self, listener: socket.socket) -> None:
        """By uvicorn's own protocol, which knows of none of the doors."""
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
        # A waiting pull would otherwise keep its connection, and with it the broker, to the end of its wait.
        if stop_waiting := self.lifespan.state.get(STOP_WAITING):
            stop_waiting()
        giving_up = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._give_up_calls)
        await super().shutdown(sockets)
        giving_up.cancel()
        if self.tracing is not None:  # here, for uvicorn ends the process by the signal that stopped it
            try:
                async with asyncio.timeout(LAST_TRACES_SECONDS):
                    await asyncio.to_thread(self.tracing.close)
            except TimeoutError:
                logger.warning("the last spans are lost: no collector took them in %d s", LAST_TRACES_SECONDS)

    def _give_up_calls(self) -> None:
        """Before uvicorn does it, which would log an error: a database that is away is none of the broker's."""
        if tasks := list(self.server_state.tasks):
            logger.warning("%d calls had no answer when the broker stopped", len(tasks))
        for task in tasks:
            task.cancel()  # the door answers them


def run_worker(
    config: AppConfig,
    ports: Ports,
    pipe: Connection,
    log: tuple[str, str],
    counters: Counters,
    load_seconds: float = 0.0,
) -> None:
    """Serve on the parent's sockets until SIGTERM, or until the parent is gone.  `log`: level and format."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # so does the end of a terminal
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent passes it on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    set_up_log(*log)

    def failed(error: Exception) -> None:
        logger.debug("the start failed", exc_info=error)
        with contextlib.suppress(OSError):  # the parent is gone
            pipe.send(Failed(reason(error)))

    try:
        _serve(config, ports, pipe, counters, failed, load_seconds)
    except Exception as error:
        failed(error)
        sys.exit(1)


def _serve(
    config: AppConfig,
    ports: Ports,
    pipe: Connection,
    counters: Counters,
    failed: Callable[[Exception], None],
    load_seconds: float,
) -> None:
    files = _raise_file_limit()
    give_large_blocks_back()
    tls = ServerTls(ports.tls) if ports.tls else None
    storage = StorageAlarm()
    counters.certificate = lambda: _validity(tls)
    make_protocol = MakeProtocol(
        most_connections=files - files // 8, tls=tls, keep_alive_seconds=config.keep_alive_seconds
    )
    server = _Server(
        uvicorn.Config(
            create_app(
                config,
                counters=counters,
                storage=storage,
                while_away=lambda: ports.turning_away(_AWAY, alive=True),
                start_failed=failed,
            ),
            loop="uvloop",
            http=cast(type[asyncio.Protocol], make_protocol),
            ws="none",
            proxy_headers=False,
            lifespan="on",
            access_log=False,
            log_config=None,
            backlog=2048,
            timeout_graceful_shutdown=GRACE_SECONDS + ANSWERING_SECONDS,
            date_header=False,
            server_header=False,
        ),
        pipe,
        ports,
        load_seconds,
    )
    threading.Thread(target=_hear_parent, args=(pipe, tls, storage), daemon=True).start()
    if config.traces:
        server.tracing = counters.tracing = _tracing()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve([ports.main]))


def _tracing() -> "Tracing | None":
    """None: OpenTelemetry is not installed."""
    try:
        from broker.telemetry.tracing import start_tracing
    except ImportError as error:
        logger.warning("no traces are sent, for %s: install the broker with the extra otel", error)
        return None
    return start_tracing()


@contextlib.contextmanager
def _unsaid() -> Iterator[None]:
    """Without a word of uvicorn's within the block."""
    said = logging.getLogger("uvicorn.error")
    said.addFilter(_nothing)
    try:
        yield
    finally:
        said.removeFilter(_nothing)


def _nothing(_: logging.LogRecord) -> bool:
    return False


def _raise_file_limit() -> int:
    """As far as the operator's hard limit allows.  Returns how many files may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def give_large_blocks_back() -> None:
    """Blocks of a large body's size go back to the system as soon as they are free.

    glibc would take the first that is freed for a sign to keep those to come, of up to 32 MB each.  Of smaller ones
    it keeps what a large body is read with, piece by piece: pages given back and taken again cost more than that
    (docs/decisions/0020-fair-shares.md).
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def _hear_parent(pipe: Connection, tls: ServerTls | None, storage: StorageAlarm) -> None:
    """The pipe ends when the parent does, even if it was killed."""
    try:
        while True:
            match pipe.recv():
                case Renew(material) if tls is not None:
                    _renew(tls, material)
                case Disk(space):
                    storage.report_disk(space)
                case Outage(why):
                    storage.report_outage(why)
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def _validity(tls: ServerTls | None) -> tuple[float, float] | None:
    """Of the certificate that new connections get, as Unix times."""
    if tls is None or tls.validity is None:
        return None
    return tls.validity.begins.timestamp(), tls.validity.ends.timestamp()


def _renew(tls: ServerTls, material: TlsMaterial) -> None:
    try:
        tls.renew(material)
    except UnusableTls as error:  # the parent could use it
        logger.error("the new certificate is not used, and the old one stays in use: %s", error)
