"""What `broker doctor` finds in a PostgreSQL: checks, each with its state (ok, look, mend) and what to do."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

from broker.domain.database_url import without_password
from broker.store.engine.prepared import WHAT_TO_DO
from broker.store.schema.fleet import SPARE, Fleet, read_fleet
from broker.store.schema.hot_nodes import look_at_nodes
from broker.store.schema.prepared_transactions import look_at_prepared
from broker.store.schema.refused_messages import look_at_staged
from broker.store.schema.replica_state import look_at_replica
from broker.store.schema.schema_state import DatabaseUnreachable, inspect, why_not_served
from broker.store.schema.server_settings import ServerSettings, read_server_settings

Found = tuple[str, str, str, str]

_MUST_BE_ON = {
    "fsync": "what was answered is lost when the machine fails",
    "full_page_writes": "a crash may break the tables",
    "autovacuum": "tables grow without an end",
}
_LONG_STAGED_SECONDS = 30.0
_SMALL_BUFFERS = 16_384  # pages: 128 MB, PostgreSQL's own default
_SKEW_SECONDS = 30.0
_LATE_SECONDS = 10.0  # as --replica-max-lag-seconds is unless it is given
_FULL = 0.8  # of max_connections
_FREE, _HARDLY_FREE = 0.15, 0.05  # of a disk


def look_at_database(database_url: str) -> Iterator[Found]:
    """What is wrong with it, and what is well."""
    where = without_password(database_url)
    try:
        state, server = inspect(database_url), read_server_settings(database_url)
    except DatabaseUnreachable as error:
        yield "database", "mend", str(error), "docs/runbooks.md has what to do when the database is away"
        return
    size = f"{server.database_bytes / 1e6:,.0f} MB"
    yield "database", "ok", f"PostgreSQL {server.version.partition(' ')[0]} at {where}, {size}", ""
    problem = why_not_served(state.revision) or state.problem
    yield "schema", "mend" if problem else "ok", problem or f"{state.schema} at {state.revision}", ""
    if not problem:
        yield from _of_transactions(database_url, state.schema)
        yield from _of_prepared(database_url)
    yield from _of_settings(server)
    yield _of_disk(server)
    if not problem:
        yield from _of_fleet(read_fleet(database_url, state.schema))
    skew = (server.now - datetime.now(UTC)).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        yield "database clock", "mend", f"{skew:+.0f} s beside this machine's", "publish times are the database's"
    if server.is_standby:
        yield "standby", "mend", "the server only reads", "give the URL of the primary"


def look_at_replica_of(database_url: str, replica_url: str) -> Iterator[Found]:
    """Whether calls that look may read it."""
    try:
        state = look_at_replica(database_url, replica_url)
    except DatabaseUnreachable as error:
        yield "replica", "mend", str(error), "calls that look read the primary meanwhile"
        return
    if not state.is_copy:
        yield "replica", "mend", "it is no copy of this database", "only a standby that streams from it is one"
    elif not state.follows:
        yield "replica", "mend", "it follows no primary: it was promoted", "name another standby, or none"
    elif state.bytes_behind:
        found = f"{state.bytes_behind:,} bytes behind; its newest commit is {state.seconds:.0f} s old"
        yield "replica", "ok" if state.seconds < _LATE_SECONDS else "look", found, ""
    else:
        yield "replica", "ok", "it has all that the primary has", ""


def look_at_hot_nodes(database_url: str, hot_url: str) -> Iterator[Found]:
    """Whether hot statements may go there."""
    try:
        found = look_at_nodes(database_url, hot_url, inspect(database_url).schema)
    except DatabaseUnreachable as error:
        yield "hot nodes", "mend", str(error), ""
        return
    if found.problem:
        yield "hot nodes", "mend", found.problem, ""
        return
    for why in found.away:
        state = "look" if found.answer else "mend"
        yield "hot nodes", state, why, "connections go to the others meanwhile" if found.answer else ""
    if found.answer:
        yield "hot nodes", "ok", f"{', '.join(found.answer)} are of this cluster", ""


def _of_transactions(database_url: str, schema: str) -> Iterator[Found]:
    """What applications have committed, and no broker has taken or could publish; nothing if there is nothing."""
    staged = look_at_staged(database_url, schema=schema)
    if staged.oldest_seconds > _LONG_STAGED_SECONDS:
        found = f"{staged.rows:,} rows wait, the first for {staged.oldest_seconds:.0f} s"
        yield "transactions", "look", found, "is their topic frozen? does a broker of this version run?"
    if staged.refused:
        yield "transactions", "look", f"{staged.refused:,} messages are put aside", "broker sql refused lists them"


def _of_prepared(database_url: str) -> Iterator[Found]:
    """Commits in two phases that Citus should have ended; nothing if there is nothing."""
    for each in look_at_prepared(database_url):
        found = f"{each.name} is prepared at {each.node} for {each.seconds} s, and keeps its locks"
        yield "prepared transaction", "mend", found, WHAT_TO_DO


def _of_settings(server: ServerSettings) -> Iterator[Found]:
    off = [name for name in _MUST_BE_ON if server.values[name] != "on"]
    for name in off:
        yield name, "mend", f"off: {_MUST_BE_ON[name]}", f"ALTER SYSTEM SET {name} = on"
    if not off:
        yield "durability", "ok", "fsync, full_page_writes and autovacuum are on", ""
    pages = int(server.values["shared_buffers"])
    if pages < _SMALL_BUFFERS:
        yield "shared_buffers", "look", f"{pages * 8 // 1024} MB", "ALTER SYSTEM SET shared_buffers = '256MB'"
    most = int(server.values["max_connections"])
    if server.sessions > _FULL * most:
        found = f"{server.sessions} sessions of {most}"
        yield "connections", "look", found, "raise max_connections, or lower --pool-size"


def _of_disk(server: ServerSettings) -> Found:
    """PostgreSQL does not tell how much is free; this machine does, where the database is on it."""
    directory = server.values.get("data_directory", "")
    try:
        disk = shutil.disk_usage(directory) if directory and server.is_here else None
    except OSError:  # it is in a container, or not to be seen by this user
        disk = None
    if disk is None or not disk.total:  # of a path that only the server's own process has, nothing is told
        where = "`df` on the machine of PostgreSQL tells what is free"
        return "disk", "look", "it is not to be seen from here", where
    share = disk.free / disk.total
    found = f"{disk.free / 1e9:,.1f} GB of {disk.total / 1e9:,.1f} GB are free at {directory}"
    if share >= _FREE:
        return "disk", "ok", found, ""
    state = "mend" if share < _HARDLY_FREE else "look"
    return "disk", state, found, "docs/runbooks.md has what to do when it fills"


def _of_fleet(fleet: Fleet) -> Iterator[Found]:
    """Whether the database has room for all connections of the processes that run."""
    if not fleet.processes:
        yield "fleet", "ok", f"no broker runs; {fleet.allowed} connections are theirs at the most", ""
        return
    they = "1 process" if fleet.processes == 1 else f"{fleet.processes} processes"
    found = f"{they} may open {fleet.connections} connections; {fleet.allowed} are allowed"
    missing = fleet.connections + SPARE - fleet.allowed
    if missing <= 0:
        yield "fleet", "ok", found, ""
        return
    state = "mend" if fleet.connections > fleet.allowed else "look"
    yield "fleet", state, found, f"{fleet.bound} must be at least {fleet.bound_at + missing}, or lower --pool-size"
