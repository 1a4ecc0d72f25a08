"""Checks of a broker's databases, which `broker doctor` and `GET /v1/broker/findings` report."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from broker.db.citus.prepared import WHAT_TO_DO
from broker.db.database_url import without_password
from broker.db.schema.fleet import BY_DEFAULT, SPARE, Fleet, read_fleet
from broker.db.schema.hot_nodes import inspect_nodes
from broker.db.schema.prepared_transactions import inspect_prepared_transactions
from broker.db.schema.replica_state import ReplicaUnreachable, inspect_replica
from broker.db.schema.schema_state import DatabaseUnfit, DatabaseUnreachable, UrlUnusable, inspect, why_not_served
from broker.db.schema.server_settings import ServerSettings, read_server_settings
from broker.features.inspect.fleet.finding import ERROR, OK, WARNING, Finding, not_checked
from broker.features.outbox.application_functions import CannotGrant
from broker.features.outbox.refused_messages import inspect_outbox

Check = Callable[[], Iterator[Finding]]
_MUST_BE_ON = {
    "fsync": "what was answered is lost when the machine fails",
    "full_page_writes": "a crash may break the tables",
    "autovacuum": "tables grow without an end",
}
_LONG_IN_OUTBOX_SECONDS = 30.0
_SMALL_BUFFERS = 16_384  # pages: 128 MB, PostgreSQL's own default
_SKEW_SECONDS = 30.0
_FULL = 0.8  # of max_connections
_FREE, _HARDLY_FREE = 0.15, 0.05  # of a disk


def make_checks(
    database_url: str,
    *,
    schema: str = "",
    replica_url: str = "",
    late_seconds: float = 10.0,
    hot_url: str = "",
    ignored_settings: Sequence[str] = (),
) -> Sequence[Check]:
    """Returns the checks of the databases of a broker.  Databases whose URL is empty are not checked."""
    checks: list[Check] = [lambda: (Finding("settings", WARNING, each) for each in ignored_settings)]
    checks += [lambda: inspect_database(database_url, schema)] if database_url else []
    if replica_url:
        checks.append(lambda: inspect_replica_of(database_url, replica_url, late_seconds=late_seconds))
    return checks + ([lambda: inspect_hot_nodes(database_url, hot_url, schema)] if hot_url else [])


def inspect_database(database_url: str, schema: str = "") -> Iterator[Finding]:
    """Yields the findings of all checks of the database itself."""
    try:
        state, server = inspect(database_url, schema), read_server_settings(database_url)
    except DatabaseUnreachable as error:
        is_away = not isinstance(error, DatabaseUnfit | UrlUnusable)
        finding = "cannot be reached" if is_away else "cannot be used"
        yield Finding("database", ERROR, finding, str(error), "broker docs runbooks database" if is_away else "")
        return
    yield _of_server(server, database_url)
    problem = why_not_served(state.revision) or state.problem
    if problem:
        yield Finding("schema", ERROR, "cannot be served", problem)
    else:
        yield Finding("schema", OK, f"{state.schema} at {state.revision}")
    if not problem:
        yield from _checked("transactions", lambda: _of_transactions(database_url, state.schema))
        yield from _checked("prepared transaction", lambda: _of_prepared(database_url))
    yield from _of_settings(server)
    yield _of_disk(server)
    if not problem:
        yield from _checked("fleet", lambda: _of_fleet(read_fleet(database_url, state.schema)))
    yield from _of_clock(server)
    if server.is_standby:
        yield Finding("standby", ERROR, "the server is read-only", "it is a standby", "give the URL of the primary")


def inspect_replica_of(database_url: str, replica_url: str, *, late_seconds: float = 10.0) -> Iterator[Finding]:
    """Checks whether calls that only read may use the replica, which may be at most `late_seconds` behind."""
    return _checked("replica", lambda: _of_replica(database_url, replica_url, late_seconds))


def inspect_hot_nodes(database_url: str, hot_url: str, schema: str = "") -> Iterator[Finding]:
    """Checks whether hot statements may go to these nodes."""
    return _checked("hot nodes", lambda: _of_nodes(database_url, hot_url, schema))


def _checked(name: str, check: Check) -> Iterator[Finding]:
    """Yields the findings of a check, or one that says that the check could not be made if the database fails."""
    try:
        yield from check()
    except (DatabaseUnreachable, CannotGrant) as error:
        yield not_checked(name, str(error))


def _of_server(server: ServerSettings, database_url: str) -> Finding:
    version, size = server.version.partition(" ")[0], f"{server.database_bytes / 1e6:,.0f} MB"
    return Finding("database", OK, f"PostgreSQL {version} at {without_password(database_url)}, {size}")


def _of_clock(server: ServerSettings) -> Iterator[Finding]:
    skew = (server.now - datetime.now(UTC)).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        found = f"{skew:+.0f} s from this machine's"
        yield Finding(
            "database clock", ERROR, found, "publish times are the database's", "set one of the two clocks"
        )


def _of_replica(database_url: str, replica_url: str, late_seconds: float) -> Iterator[Finding]:
    """Checks the replica.  Raises DatabaseUnreachable if the primary, which it is compared with,
    cannot be reached.
    """
    try:
        state = inspect_replica(database_url, replica_url)
    except ReplicaUnreachable as error:
        yield Finding("replica", ERROR, str(error), "read-only calls use the primary meanwhile")
        return
    if not state.is_copy:
        found = "it is not a copy of this database"
        yield Finding("replica", ERROR, found, "only a standby that streams from it is one")
    elif not state.follows:
        found = "it follows no primary"
        yield Finding("replica", ERROR, found, "it was promoted", "give --replica-database-url another standby")
    elif state.bytes_behind:
        found = f"{state.bytes_behind:,} bytes behind; its newest commit is {state.seconds:.0f} s old"
        yield Finding("replica", OK if state.seconds < late_seconds else WARNING, found)
    else:
        yield Finding("replica", OK, "it has all that the primary has")


def _of_nodes(database_url: str, hot_url: str, schema: str) -> Iterator[Finding]:
    """Checks the nodes.  Raises DatabaseUnreachable if the coordinator cannot be reached."""
    try:
        found = inspect_nodes(database_url, hot_url, inspect(database_url, schema).schema)
    except UrlUnusable as error:
        yield Finding("hot nodes", ERROR, str(error))
        return
    if found.problem:
        yield Finding("hot nodes", ERROR, found.problem)
        return
    for why in found.away:
        others = "connections go to the others meanwhile" if found.answer else ""
        yield Finding("hot nodes", WARNING if found.answer else ERROR, why, others)
    if found.answer:
        yield Finding("hot nodes", OK, f"{', '.join(found.answer)} are of this cluster")


def _of_transactions(database_url: str, schema: str) -> Iterator[Finding]:
    """Checks the outbox.  Raises CannotGrant."""
    outbox = inspect_outbox(database_url, schema=schema)
    if outbox.oldest_seconds > _LONG_IN_OUTBOX_SECONDS:
        found = f"{outbox.rows:,} rows wait, the first for {outbox.oldest_seconds:.0f} s"
        why = "their topic is frozen, or no broker of this version runs"
        yield Finding("transactions", WARNING, found, why, "broker topic list")
    if outbox.refused:
        found = f"{outbox.refused:,} messages are put aside"
        yield Finding("transactions", WARNING, found, "they could not be published", "broker sql refused")


def _of_prepared(database_url: str) -> Iterator[Finding]:
    """Yields a finding for each commit in two phases that Citus should have ended.  Raises DatabaseUnreachable."""
    for each in inspect_prepared_transactions(database_url):
        found = f"{each.name} is prepared at {each.node} for {each.seconds} s, and keeps its locks"
        yield Finding("prepared transaction", ERROR, found, "", WHAT_TO_DO)


def _of_settings(server: ServerSettings) -> Iterator[Finding]:
    off = [name for name in _MUST_BE_ON if server.values[name] != "on"]
    for name in off:
        yield Finding(name, ERROR, "off", _MUST_BE_ON[name], f"ALTER SYSTEM SET {name} = on")
    if not off:
        yield Finding("durability", OK, "fsync, full_page_writes and autovacuum are on")
    pages = int(server.values["shared_buffers"])
    if pages < _SMALL_BUFFERS:
        found, command = f"{pages * 8 // 1024} MB", "ALTER SYSTEM SET shared_buffers = '256MB'"
        yield Finding("shared_buffers", WARNING, found, "less than PostgreSQL's own default", command)
    most = int(server.values["max_connections"])
    if server.sessions > _FULL * most:
        found = f"{server.sessions} sessions of {most}"
        why = "new connections are refused when all are in use"
        yield Finding("connections", WARNING, found, why, "raise max_connections, or lower --pool-size")


def _of_disk(server: ServerSettings) -> Finding:
    """Measures the free space of the disk if the database is on this machine: PostgreSQL itself does
    not report it.
    """
    directory = server.values.get("data_directory")
    if directory is None:
        why = "the broker's role may not read where PostgreSQL has its data"
        return Finding("disk", WARNING, "cannot be measured", why, "GRANT pg_read_all_settings TO the role")
    try:
        disk = shutil.disk_usage(directory) if server.is_here else None
    except OSError:  # in a container, or not readable by this user
        disk = None
    if disk is None or not disk.total:  # a path of the server's own process
        why = "PostgreSQL is on another machine or in a container"
        return Finding("disk", WARNING, "cannot be measured from here", why, "df, on the machine of PostgreSQL")
    share = disk.free / disk.total
    found = f"{disk.free / 1e9:,.1f} GB of {disk.total / 1e9:,.1f} GB are free at {directory}"
    if share >= _FREE:
        return Finding("disk", OK, found)
    state = ERROR if share < _HARDLY_FREE else WARNING
    return Finding("disk", state, found, "PostgreSQL stops when it is full", "broker docs runbooks disk")


def _of_fleet(fleet: Fleet) -> Iterator[Finding]:
    """Checks whether the database has room for the connections of all running processes."""
    if not fleet.processes:
        found = f"no broker was seen in the last 10 s; {fleet.allowed} connections are theirs at the most"
        if (missing := BY_DEFAULT - fleet.allowed) > 0:
            why = f"one process opens up to {BY_DEFAULT} by default"
            command = f"raise {fleet.bound} to at least {fleet.bound_at + missing}, or lower --pool-size"
            yield Finding("fleet", ERROR, found, why, command)
        else:
            yield Finding("fleet", OK, found)
        return
    they = "1 process" if fleet.processes == 1 else f"{fleet.processes} processes"
    found = f"{they} may open {fleet.connections} connections; {fleet.allowed} are allowed"
    missing = fleet.connections + SPARE - fleet.allowed
    if missing <= 0:
        yield Finding("fleet", OK, found)
        return
    state = ERROR if fleet.connections > fleet.allowed else WARNING
    command = f"raise {fleet.bound} to {fleet.bound_at + missing}, or lower --pool-size"
    yield Finding("fleet", state, found, "processes wait for connections, or are refused them", command)
