"""The database's schema, brought up or looked at in a process of its own.

That needs Alembic and SQLAlchemy, which the parent of the broker's processes would then keep in memory for ever.
"""

from collections.abc import Callable
from multiprocessing.connection import Connection

from broker.cli.child_process import CONTEXT, start_deaf
from broker.cli.stop import Stop
from broker.telemetry.log import set_up_log

MIN_SERVER_VERSION = 15


def upgrade_schema(database_url: str) -> None:
    """Bring the schema up to date.  Raises Stop."""
    _in_a_process(_upgrade, database_url)


def check_schema(database_url: str) -> None:
    """Whether a database of the operator's own can be served from.  Raises Stop."""
    _in_a_process(_check, database_url)


def _in_a_process(work: Callable[[str], str], database_url: str) -> None:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_answer, args=(work, database_url, theirs), name="schema")
    start_deaf(process)
    theirs.close()
    try:
        problem = ours.recv()
    except EOFError:
        problem = "the process that looks after the database's schema ended without a word"
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.join()
    if problem:
        raise Stop(problem)


def _answer(work: Callable[[str], str], database_url: str, pipe: Connection) -> None:
    set_up_log("info")  # a migration that waits says for whom
    pipe.send(work(database_url))


def _upgrade(database_url: str) -> str:
    """What is wrong ("": nothing)."""
    from broker.store import migrations

    try:
        migrations.upgrade(database_url)
    except migrations.DatabaseUnreachable as error:
        return str(error)
    return ""


def _check(database_url: str) -> str:
    """What is wrong ("": nothing)."""
    from broker.store import migrations

    try:
        state = migrations.inspect(database_url)
    except migrations.DatabaseUnreachable as error:
        return str(error)
    if state.server_major_version < MIN_SERVER_VERSION:
        return f"PostgreSQL {state.server_major_version} is too old: the broker needs {MIN_SERVER_VERSION}+"
    return migrations.why_not_served(state.revision)
