"""`broker serve`: the embedded PostgreSQL if there is no other, then the broker's processes.

The parent opens the listening socket, owns the embedded PostgreSQL, and keeps its children running; each child
is a whole broker that accepts from the same socket.  The children end with the parent, however it ends.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from broker.app_config import AppConfig
from broker.cli.admin_key import FILE_NAME, is_administered, make_admin_key
from broker.cli.announcements import say, say_ready, say_what_runs
from broker.cli.children import Children
from broker.cli.schema import Served, check_schema, upgrade_schema
from broker.cli.stop import Misuse, Stop
from broker.embedded_postgres.cluster import Cluster, ClusterError
from broker.port.listener import CannotListen, base_url, bound_socket, is_open_to_others, listen
from broker.port.listener import url as url_of
from broker.setting_checks import read_oidc_issuers
from broker.settings import Settings
from broker.telemetry.log import set_up_log

_NO_AUTHENTICATION = "authentication is off (--auth required); keep the port on a network that you trust"
_CLEARTEXT = (
    "credentials come in cleartext, and whoever reads them on their way can use them (--insecure-transport)"
)

logger = logging.getLogger(__name__)


def serve(settings: Settings) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP.  Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level)
    for number in _stop_signals():
        signal.signal(number, signal.default_int_handler)  # until the loop runs, each unwinds what was started
    try:
        with (
            _data_directory(settings) as cluster,
            bound_socket(settings.host, settings.port) as listener,
            _database(settings, cluster, _check_transport(settings, listener)) as (url, served),
        ):
            say_what_runs(settings, postgres=served.postgres, schema=served.schema, revision=served.revision)
            _warn_of_strangers(settings, listener)
            asyncio.run(_serve(settings, listener, cluster, url, served.schema))
    except CannotListen as error:
        raise Stop(str(error)) from error
    except KeyboardInterrupt:
        pass
    say("Stopped.")
    return 0


def _check_transport(settings: Settings, listener: socket.socket) -> str:
    """The URL at which the holders of keys reach the broker.  Raises Misuse if their credentials would be readable
    on their way.
    """
    if settings.auth == "required" and is_open_to_others(listener) and not settings.insecure_transport:
        raise Misuse(
            f"--auth required on {url_of(listener)} would take credentials in cleartext from other machines: "
            "listen on 127.0.0.1 behind something that speaks TLS, or give --insecure-transport"
        )
    return (settings.issuer or base_url(listener)).rstrip("/")


def _warn_of_strangers(settings: Settings, listener: socket.socket) -> None:
    if is_open_to_others(listener):
        if settings.auth == "off":
            logger.warning("anyone who reaches %s may do anything: %s", url_of(listener), _NO_AUTHENTICATION)
        else:
            logger.warning("%s is open to other machines without TLS: %s", url_of(listener), _CLEARTEXT)


def _stop_signals() -> list[signal.Signals]:
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        signals.append(signal.SIGHUP)
    return signals


def _ignore_signals() -> None:
    """From here on the broker stops; a second Ctrl-C must not leave anything running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _data_directory(settings: Settings) -> Iterator[Cluster | None]:
    """The embedded PostgreSQL, not yet started, if there is no other; its directory is locked within the block."""
    if settings.database_url:
        yield None
        return
    if not settings.data_dir:
        raise Misuse("there is no home directory for the data: give --data-dir, or --database-url")
    cluster = Cluster(Path(settings.data_dir))
    try:
        cluster.lock()
        yield cluster
    except ClusterError as error:
        raise Stop(str(error)) from error
    finally:
        _ignore_signals()
        cluster.close()


@contextmanager
def _database(settings: Settings, cluster: Cluster | None, address: str) -> Iterator[tuple[str, Served]]:
    """The URL of the database to serve from: the operator's own, or the embedded one, started and migrated; and
    where the tables are in it.  With authentication there is somebody who owns everything.
    """
    is_guarded = settings.auth == "required"
    if cluster is None:
        served = check_schema(settings.database_url, settings.database_schema)
        if is_guarded and not is_administered(settings.database_url, served.schema):
            raise Stop("nobody has a key for this database yet: run `broker auth bootstrap --key-file FILE` first")
        yield settings.database_url, served
        return
    say(f"{'Starting' if cluster.exists() else 'Making'} a PostgreSQL in {Path(settings.data_dir).absolute()} …")
    cluster.open()
    served = upgrade_schema(cluster.url, settings.database_schema)
    if is_guarded and not is_administered(cluster.url, served.schema):
        path = Path(settings.data_dir).absolute() / FILE_NAME
        make_admin_key(cluster.url, served.schema, base_url=address, path=path)
        say(f"The key of the administrator, who may do everything, is in {path}")
    yield cluster.url, served


async def _serve(
    settings: Settings, listener: socket.socket, cluster: Cluster | None, url: str, schema: str
) -> None:
    config = AppConfig(
        database_url=url,
        database_schema=schema,
        pull_wait_seconds=settings.pull_wait_seconds,
        pool_size=settings.pool_size,
        request_memory_mb=settings.request_memory_mb,
        max_waiting_pulls=settings.max_waiting_pulls,
        janitor_interval_seconds=settings.janitor_interval_seconds,
        shards_per_topic=settings.shards_per_topic,
        min_delivery_attempts=settings.min_delivery_attempts,
        base_url=base_url(listener),
        issuer=settings.issuer,
        auth=settings.auth,
        auth_audiences=settings.auth_audiences,
        oidc_issuers=read_oidc_issuers(settings.oidc_issuers),
        push_private_addresses=settings.push_private_addresses,
        push_allowed_networks=settings.push_allowed_networks,
        push_ca_file=settings.push_ca_file,
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _stop_signals():
        loop.add_signal_handler(number, stopping.set)
    children = Children(config, listener, count=settings.workers, log_level=settings.log_level)
    listen(listener)
    async with _kept_running(cluster), children.running():
        await _first(children.ready.wait(), children.given_up.wait(), stopping.wait())
        if children.given_up.is_set() and not stopping.is_set():
            raise Stop(children.why)
        if not stopping.is_set():
            say_ready(listener)
        await stopping.wait()
        for number in _stop_signals():
            loop.remove_signal_handler(number)  # the loop would restore the deadly default at its end
        _ignore_signals()


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


@asynccontextmanager
async def _kept_running(cluster: Cluster | None) -> AsyncIterator[None]:
    if cluster is None:
        yield
        return
    keeper = asyncio.create_task(cluster.keep_running())
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
