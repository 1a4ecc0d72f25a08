"""`broker serve`: starts the embedded PostgreSQL, unless another one is configured, and the broker's processes.

The parent opens the listening socket, owns the embedded PostgreSQL, and restarts its children.  Each child is a
complete broker that accepts from the same socket.  The children end with the parent, however it ends.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.access.secrets.keys import FILE_NAME as FILE_OF_SECRETS
from broker.access.secrets.keys import format_keys, make_key, read_keys
from broker.app.config import AppConfig, connections_of_a_process
from broker.app.process_environment import take_service_variables
from broker.app.settings.checks import AUTO, read_certificate_principals, read_oidc_issuers
from broker.app.settings.fields import Settings
from broker.app.settings.find import SettingsInForce, asks_for_traces
from broker.cli.server.admin_key import FILE_NAME, is_administered, make_admin_key
from broker.cli.server.announcements import say, say_ready, say_what_runs
from broker.cli.server.apply_at_start import apply_at_start, check_apply
from broker.cli.server.children import Children
from broker.cli.server.disk_watch import DiskWatch
from broker.cli.server.own_database import hot_database, own_database, replica_database
from broker.cli.server.ports import Ports, bound_ports
from broker.cli.server.service_manager import ServiceManager, service_manager
from broker.cli.server.start_times import StartTimes
from broker.cli.server.tls_files import Renewal, TlsFiles, tls_at_start
from broker.client.private_file import write_private_file
from broker.client.stop import Misuse, Stop
from broker.core.context.storage import parse_size
from broker.db.embedded.cluster import Cluster, ClusterError
from broker.net.listener import CannotListen, base_url, is_open_to_others
from broker.net.listener import url as url_of
from broker.observability.log import set_up_log
from broker.observability.state_changes import StateChanges

if TYPE_CHECKING:
    from broker.cli.server.schema import Served

_NO_AUTHENTICATION = "authentication is off (--auth required); keep the port on a network that you trust"
_CLEARTEXT = (
    "credentials come in cleartext, and whoever reads them on their way can use them (--insecure-transport)"
)
_NO_KEY = (
    "webhooks' secrets, and the keys that sign tokens; whoever reads a backup has them (give --secrets-key-file)"
)

logger = logging.getLogger(__name__)


def serve(in_force: SettingsInForce, *, verbose: bool = False) -> int:
    """Serve until SIGINT or SIGTERM, or, without TLS, SIGHUP.  Returns the exit code.  Raises Stop.

    `verbose`: say how long each step of the start takes.
    """
    settings = in_force.settings
    times = StartTimes(say if verbose else lambda _line: None)
    set_up_log(settings.log_level, settings.log_format)
    tls = tls_at_start(settings)
    own_url, replica_url, hot_url = own_database(settings), replica_database(settings), hot_database(settings)
    for number in _stop_signals():
        signal.signal(number, signal.default_int_handler)  # until the loop runs, each unwinds what was started
    asks_for_traces()  # before anything is made, for it may be refused
    check_apply(settings)
    try:
        manager = service_manager(take_service_variables())
        with (
            _data_directory(settings) as cluster,
            bound_ports(settings, tls.material if tls else None, manager.sockets) as ports,
            _database(settings, cluster, own_url, _check_transport(settings, ports), times) as (url, served),
        ):
            say_what_runs(settings, postgres=served.postgres, schema=served.schema, revision=served.revision)
            _warn_of_strangers(settings, ports)
            if hot_url:
                from broker.cli.server.schema import check_hot_nodes

                check_hot_nodes(url, hot_url, served.schema)
            children = Children(ports, count=settings.workers, log=(settings.log_level, settings.log_format))
            config = _config(settings, ports, url, replica_url, served.schema)
            size_max = parse_size(settings.database_size_max)
            config = replace(config, hot_database_url=hot_url, database_size_max=size_max)
            config = replace(config, shown_settings=in_force.all_shown, ignored_settings=in_force.ignored)
            apply_at_start(settings, config)
            times.done("the configuration is read")
            asyncio.run(_serve(settings, ports, tls, cluster, config, manager, children, times))
    except CannotListen as error:
        raise Stop(str(error)) from error
    except KeyboardInterrupt:
        pass
    say("Stopped.")
    return 0


def _check_transport(settings: Settings, ports: Ports) -> str:
    """The URL at which the holders of keys reach the broker.  Raises Misuse if their credentials would be readable
    on their way.
    """
    for listener in _readable(ports):
        if settings.auth == "required" and not settings.insecure_transport:
            raise Misuse(
                f"--auth required on {url_of(listener)} would take credentials in cleartext from other machines: "
                "give --tls-certificate and --tls-key, or --insecure-transport"
            )
    return (settings.issuer or base_url(ports.main, secure=ports.is_secure)).rstrip("/")


def _readable(ports: Ports) -> list[socket.socket]:
    """Returns the sockets that other machines reach without TLS."""
    return [one for one in ports.sockets if is_open_to_others(one) and not ports.speaks_tls(one)]


def _warn_of_strangers(settings: Settings, ports: Ports) -> None:
    if settings.auth == "off":
        for listener in filter(is_open_to_others, ports.sockets):
            where = url_of(listener, secure=ports.speaks_tls(listener))
            logger.warning("anyone who reaches %s may do anything: %s", where, _NO_AUTHENTICATION)
        return
    for listener in _readable(ports):
        logger.warning("%s is open to other machines without TLS: %s", url_of(listener), _CLEARTEXT)


def _key_file(settings: Settings) -> str:
    """Returns the file with the keys of secrets; "": there is none.  Raises Stop."""
    if settings.secrets_key_file:
        return settings.secrets_key_file
    if settings.database_url:
        logger.warning("secrets are in clear text in the database: %s", _NO_KEY)
        return ""
    path = Path(settings.data_dir).absolute() / FILE_OF_SECRETS
    try:
        if not path.exists():
            write_private_file(path, format_keys([make_key()]))
        read_keys(path)
    except (OSError, ValueError) as error:
        raise Stop(f"the keys of secrets in {path} cannot be used: {error}") from error
    return str(path)


def _stop_signals() -> list[signal.Signals]:
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        signals.append(signal.SIGHUP)
    return signals


def _ignore_signals() -> None:
    """Ignores further signals: the broker stops, and a second Ctrl-C must not leave anything running."""
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
def _database(
    settings: Settings, cluster: Cluster | None, own_url: str, address: str, times: StartTimes
) -> Iterator[tuple[str, "Served"]]:
    """Yields the URL of the database to serve from, and the schema with the tables.

    The database is the operator's own, or the embedded one, started and migrated.  With authentication there is a
    principal that owns everything.
    """
    from broker.cli.server.schema import (  # loads psycopg, while the workers load theirs
        check_schema,
        schema_upgrade,
    )

    is_guarded = settings.auth == "required"
    if cluster is None:
        connections = settings.workers * connections_of_a_process(settings.pool_size)
        served = check_schema(own_url, settings.database_schema, connections=connections)
        times.done("the schema is checked")
        if is_guarded and not is_administered(own_url, served.schema):
            raise Stop("nobody has a key for this database yet: run `broker auth bootstrap --key-file FILE` first")
        yield own_url, served
        return
    say(f"{'Starting' if cluster.exists() else 'Making'} a PostgreSQL in {Path(settings.data_dir).absolute()} …")
    with schema_upgrade(is_new=not cluster.exists()) as upgrade:
        cluster.open(times.done)
        served = upgrade(cluster.url, settings.database_schema)
    times.done("the schema is up to date")
    if is_guarded and not is_administered(cluster.url, served.schema):
        path = Path(settings.data_dir).absolute() / FILE_NAME
        make_admin_key(cluster.url, served.schema, base_url=address, path=path)
        say(f"The key of the administrator, who may do everything, is in {path}")
    yield cluster.url, served


async def _serve(
    settings: Settings,
    ports: Ports,
    tls: TlsFiles | None,
    cluster: Cluster | None,
    config: AppConfig,
    manager: ServiceManager,
    children: Children,
    times: StartTimes,
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _stop_signals():
        loop.add_signal_handler(number, stopping.set)
    ports.listen()
    watch = None if cluster is None else _disk_watch(settings, cluster, children)
    async with _kept_running(cluster, watch, children), children.running(config), _renewed(tls, children):
        await _first(children.ready.wait(), children.given_up.wait(), stopping.wait())
        if children.given_up.is_set() and not stopping.is_set():
            raise Stop(children.why)
        if not stopping.is_set():
            times.done("the workers serve")
            times.concurrent(children.load_seconds, "a worker's modules are loaded, beside the steps above")
            times.concurrent(children.start_seconds, "a worker begins to serve")
            times.all_done()
            say_ready(settings, ports)
            if watch is not None and watch.space.is_low:
                say(f"    {watch.space.refusal().message}")
            manager.report("READY=1", f"STATUS=Serves {url_of(ports.main, secure=ports.is_secure)}")
        await stopping.wait()
        manager.report("STOPPING=1", "STATUS=Stops")
        for number in _stop_signals():
            loop.remove_signal_handler(number)  # the loop would restore the deadly default at its end
        _ignore_signals()


def _config(settings: Settings, ports: Ports, url: str, replica_url: str, schema: str) -> AppConfig:
    """Raises Stop."""
    return AppConfig(
        database_url=url,
        database_schema=schema,
        replica_database_url=replica_url,
        replica_max_lag_seconds=settings.replica_max_lag_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
        pull_wait_seconds=settings.pull_wait_seconds,
        pool_size=settings.pool_size,
        request_memory_mb=settings.request_memory_mb,
        max_waiting_pulls=settings.max_waiting_pulls,
        max_scheduled_messages=settings.max_scheduled_messages,
        janitor_interval_seconds=settings.janitor_interval_seconds,
        lag_interval_seconds=settings.lag_interval_seconds,
        shards_per_topic=settings.shards_per_topic,
        min_delivery_attempts=settings.min_delivery_attempts,
        operations_at_once=settings.operations_at_once,
        allow_reset=settings.allow_reset,
        console=settings.console,
        console_read_only=settings.console_read_only,
        base_url=base_url(ports.main, secure=ports.is_secure),
        issuer=settings.issuer,
        quotas=settings.quotas,
        principal_quotas=settings.principal_quotas,
        auth=settings.auth,
        auth_audiences=settings.auth_audiences,
        oidc_issuers=read_oidc_issuers(settings.oidc_issuers),
        certificate_principals=read_certificate_principals(settings.certificate_principals),
        secrets_key_file=_key_file(settings),
        audit=settings.audit,
        audit_file=settings.audit_file,
        **_retention(settings),
        host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        cors_origins=settings.cors_origins,
        **_push_settings(settings),
        traces=asks_for_traces(),
        access_log=settings.access_log,
        slow_request_seconds=settings.slow_request_seconds,
    )


def _push_settings(settings: Settings) -> dict[str, Any]:
    """The settings of pushes, which the processes get as they are."""
    names = (each.name for each in fields(settings))
    return {name: getattr(settings, name) for name in names if name.startswith("push_")}


def _retention(settings: Settings) -> dict[str, Any]:
    """Returns the settings for how much the janitor keeps."""
    names = ("audit_days", "audit_entries", "operation_days", "delivery_record_hours")
    return {name: getattr(settings, name) for name in names}


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _disk_watch(settings: Settings, cluster: Cluster, children: Children) -> DiskWatch:
    """Raises Stop."""
    try:
        min_free = None if settings.disk_free_min == AUTO else parse_size(settings.disk_free_min)
        watch = DiskWatch(cluster, min_free, report=children.report_disk, states=StateChanges())
    except OSError as error:
        raise Stop(f"the disk of {cluster.directory} cannot be measured: {error}") from error
    children.report_disk(watch.space)
    return watch


@asynccontextmanager
async def _kept_running(
    cluster: Cluster | None, watch: DiskWatch | None, children: Children
) -> AsyncIterator[None]:
    """The embedded PostgreSQL runs, and its disk is watched, within the block."""
    if cluster is None or watch is None:
        yield
        return
    tasks = [asyncio.create_task(cluster.keep_running(children.report_outage)), asyncio.create_task(watch.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _renewed(tls: TlsFiles | None, children: Children) -> AsyncIterator[None]:
    """Files of TLS that change are used within the block, at SIGHUP at once."""
    if tls is None:
        yield
        return
    renewal = Renewal(tls, children.renew)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, renewal.check_now)
    renewing = asyncio.create_task(renewal.run())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
