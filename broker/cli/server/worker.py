"""A worker: one broker process."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import uvloop

from broker.app.asgi import create_app
from broker.app.config import AppConfig
from broker.cli.server.child_process import Disk, Failed, Outage, Renew, Serving
from broker.cli.server.ports import Ports
from broker.core.context.storage_alarm import StorageAlarm
from broker.net.first_bytes import MakeProtocol
from broker.net.tls.material import ServerTls, TlsMaterial, UnusableTls
from broker.net.uvicorn_server import UvicornServer
from broker.observability.log import reason, set_up_log
from broker.observability.metrics.counters import Counters

if TYPE_CHECKING:
    from broker.observability.tracing import Tracing

OPEN_FILES = 65_536  # connections, of clients and to endpoints of pushes; 1,024 is the usual limit
LARGE_BLOCK_BYTES = 1 << 20
KEPT_BYTES = 4 << 20  # of smaller blocks that are free
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
LAST_TRACES_SECONDS = 5  # for a collector to take what is left when the broker stops

_AWAY = "The broker cannot use its database yet, and its log has the reason; try again."

logger = logging.getLogger(__name__)


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
    level, format_ = log
    set_up_log(level, format_)

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
    app = create_app(
        config,
        counters=counters,
        storage=storage,
        while_away=lambda: ports.turning_away(_AWAY, alive=True),
        start_failed=failed,
    )
    if config.traces:
        counters.tracing = _tracing()
    server = UvicornServer(
        app,
        make_protocol,
        cleartext=ports.cleartext,
        metrics=ports.metrics,
        serving=partial(_report_serving, pipe, load_seconds, time.monotonic()),
        stopped=partial(_send_last_traces, counters),
    )
    threading.Thread(target=_hear_parent, args=(pipe, tls, storage), daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve([ports.main]))


def _report_serving(pipe: Connection, load_seconds: float, began: float) -> None:
    """Tells the parent, which prints the ready line.  `began`: the start of serving, by the monotonic clock."""
    # What the start made stays: the collector need not look at it again.  A pull makes thousands of objects that
    # end with its answer; at the default of 700 they would be searched for cycles again and again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    with contextlib.suppress(OSError):  # the parent is gone: _hear_parent notices too
        pipe.send(Serving(load_seconds, time.monotonic() - began))


async def _send_last_traces(counters: Counters) -> None:
    if counters.tracing is not None:
        try:
            async with asyncio.timeout(LAST_TRACES_SECONDS):
                await asyncio.to_thread(counters.tracing.close)
        except TimeoutError:
            logger.warning("the last spans are lost: no collector took them in %d s", LAST_TRACES_SECONDS)


def _tracing() -> "Tracing | None":
    """None: OpenTelemetry is not installed."""
    try:
        from broker.observability.tracing import start_tracing
    except ImportError as error:
        logger.warning("no traces are sent, for %s: install the broker with the extra otel", error)
        return None
    return start_tracing()


def _raise_file_limit() -> int:
    """Raises the limit on open files as far as the hard limit allows.  Returns how many may be open."""
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
    """Handles messages of the parent.  The pipe ends when the parent does, even if it was killed."""
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
    """Returns the validity of the certificate for new connections, as Unix times; None: there is none."""
    if tls is None or tls.validity is None:
        return None
    return tls.validity.begins.timestamp(), tls.validity.ends.timestamp()


def _renew(tls: ServerTls, material: TlsMaterial) -> None:
    try:
        tls.renew(material)
    except UnusableTls as error:  # the parent could use it
        logger.error("the new certificate is not used, and the old one stays in use: %s", error)
