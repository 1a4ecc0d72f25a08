"""Inspects the schema of the database when the broker starts, and brings it up to date.

Migrating needs Alembic and SQLAlchemy.  They are loaded in another process, because the parent of the broker's
processes would keep them in memory for as long as it runs.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from broker.cli.server.child_process import CONTEXT, start_deaf
from broker.client.stop import Misuse, Stop
from broker.db.schema import schema_state
from broker.observability.log import set_up_log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """PostgreSQL's major version, the schema that the broker's tables are in, and its revision; or the `problem`
    ("": none), which may be that the command makes no sense.

    `remark` is a sentence that an operator should see ("": there is nothing to say).
    """

    postgres: int = 0
    schema: str = ""
    revision: str = ""
    remark: str = ""
    problem: str = ""
    is_misuse: bool = False


@contextmanager
def schema_upgrade(*, is_new: bool) -> Iterator[Callable[[str, str], Served]]:
    """A function that brings a schema up to date ("": the broker finds the schema by itself).  It raises Stop.

    `is_new`: the database does not exist yet.  The modules for migrating are then loaded while it is created.
    """
    begun = _begin() if is_new else None

    def upgrade(database_url: str, schema: str) -> Served:
        served = _check(database_url, schema)
        if served.problem and not served.is_misuse:
            _migrate(begun or _begin(), database_url, schema)
            served = _check(database_url, schema)
        return replace(_accepted(served), remark="")  # it is of no concern in a database of the broker's own

    try:
        yield upgrade
    finally:
        if begun is not None:
            begun[1].close()
            begun[0].terminate()
            begun[0].join()


def check_schema(database_url: str, schema: str, *, connections: int = 0) -> Served:
    """Whether a database of the operator's own can be served from, over so many connections.  Raises Stop."""
    served = _accepted(_check(database_url, schema, connections=connections))
    if served.remark:
        logger.info(served.remark)
    return served


def check_hot_nodes(database_url: str, hot_url: str, schema: str) -> None:
    """Raises Stop unless hot statements may go to the nodes of that URL."""
    from broker.db.schema.hot_nodes import inspect_nodes  # slow to import, and seldom needed

    try:
        found = inspect_nodes(database_url, hot_url, schema)
    except schema_state.DatabaseUnreachable as error:
        raise Stop(str(error)) from error
    if found.problem:
        raise Stop(found.problem)
    if not found.answer:
        raise Stop(f"none of the nodes of --hot-database-url answers: {found.away[0]}")


def _accepted(served: Served) -> Served:
    """Raises Stop."""
    if served.problem:
        raise (Misuse if served.is_misuse else Stop)(served.problem)
    return served


def _begin() -> tuple[BaseProcess, Connection]:
    """A process that can migrate, and the pipe to it."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_load_and_migrate, args=(theirs,), name="schema")
    start_deaf(process)
    theirs.close()
    return process, ours


def _migrate(begun: tuple[BaseProcess, Connection], database_url: str, schema: str) -> None:
    """Raises Stop."""
    process, pipe = begun
    try:
        pipe.send((database_url, schema))
        problem = pipe.recv()
    except (EOFError, OSError):
        problem = "the process that looks after the database's schema ended without a word"
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.join()
    if problem:
        raise Stop(problem)


def _load_and_migrate(pipe: Connection) -> None:
    """Migrates, in a process of its own.  It answers why the database cannot be migrated ("": it is)."""
    from broker.db.schema import migrations

    try:
        database_url, schema = pipe.recv()
    except (EOFError, OSError):  # the parent did not get so far
        return
    set_up_log("info")  # a migration that waits says for whom
    try:
        migrations.upgrade(database_url, schema=schema)
    except schema_state.DatabaseUnreachable as error:
        pipe.send(str(error))
    else:
        pipe.send("")


def _check(database_url: str, schema: str, *, connections: int = 0) -> Served:
    try:
        state = schema_state.inspect(database_url, schema)
    except schema_state.DatabaseUnreachable as error:
        return Served(problem=str(error), is_misuse=isinstance(error, schema_state.UrlUnusable))
    if problem := schema_state.why_not_served(state.revision) or state.problem:
        return Served(problem=f"{problem}. {state.remark}" if state.remark else problem)
    if shortfall := state.bound.shortfall(connections):
        return Served(problem=shortfall)
    return Served(state.server_major_version, state.schema, str(state.revision), state.remark)
