"""The database's schema, brought up or looked at in a process of its own.

That needs psycopg, and Alembic and SQLAlchemy if there is something to bring up; the parent of the broker's
processes would keep them in memory for ever.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection

from broker.cli.child_process import CONTEXT, start_deaf
from broker.cli.stop import Misuse, Stop
from broker.telemetry.log import set_up_log

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


def upgrade_schema(database_url: str, schema: str) -> Served:
    """Bring a schema of the database up to date ("": the broker finds it by itself).  Raises Stop."""
    return _in_a_process(_upgrade, database_url, schema)


def check_schema(database_url: str, schema: str, *, connections: int = 0) -> Served:
    """Whether a database of the operator's own can be served from, over so many connections.  Raises Stop."""
    return _in_a_process(partial(_check, connections=connections), database_url, schema)


def check_hot_nodes(database_url: str, hot_url: str, schema: str) -> None:
    """Raises Stop unless hot statements may go to the nodes of that URL."""
    _in_a_process(partial(_check_nodes, hot_url), database_url, schema)


def _in_a_process(work: Callable[[str, str], Served], database_url: str, schema: str) -> Served:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_answer, args=(work, database_url, schema, theirs), name="schema")
    start_deaf(process)
    theirs.close()
    try:
        served: Served = ours.recv()
    except EOFError:
        served = Served(problem="the process that looks after the database's schema ended without a word")
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.join()
    if served.problem:
        raise (Misuse if served.is_misuse else Stop)(served.problem)
    return served


def _answer(work: Callable[[str, str], Served], database_url: str, schema: str, pipe: Connection) -> None:
    set_up_log("info")  # a migration that waits says for whom
    served = work(database_url, schema)
    if served.remark:
        logger.info(served.remark)
    pipe.send(served)


def _upgrade(database_url: str, schema: str) -> Served:
    served = _check(database_url, schema)
    if served.problem and not served.is_misuse:
        from broker.store.schema import (
            migrations,
            schema_state,
        )  # slow to import, and mostly there is nothing to do

        try:
            migrations.upgrade(database_url, schema=schema)
        except schema_state.DatabaseUnreachable as error:
            return Served(problem=str(error))
        served = _check(database_url, schema)
    return replace(served, remark="")  # it is of no concern in a database of the broker's own


def _check(database_url: str, schema: str, *, connections: int = 0) -> Served:
    from broker.store.schema import schema_state

    try:
        state = schema_state.inspect(database_url, schema)
    except schema_state.DatabaseUnreachable as error:
        return Served(problem=str(error), is_misuse=isinstance(error, schema_state.UrlUnusable))
    if problem := schema_state.why_not_served(state.revision) or state.problem:
        return Served(problem=f"{problem}. {state.remark}" if state.remark else problem)
    if shortfall := state.bound.shortfall(connections):
        return Served(problem=shortfall)
    return Served(state.server_major_version, state.schema, str(state.revision), state.remark)


def _check_nodes(hot_url: str, database_url: str, schema: str) -> Served:
    from broker.store.schema.hot_nodes import look_at_nodes
    from broker.store.schema.schema_state import DatabaseUnreachable

    try:
        found = look_at_nodes(database_url, hot_url, schema)
    except DatabaseUnreachable as error:
        return Served(problem=str(error))
    problem = found.problem or (
        "" if found.answer else f"none of the nodes of --hot-database-url answers: {found.away[0]}"
    )
    return Served(problem=problem)
