"""The process that applies declarations to a project before a broker serves (apply_at_start.py).

It runs a broker of its own on a Unix socket, in a directory that only its user can open, and applies the files
there like `broker apply`.  It needs no authentication, because a user who starts a broker can open its database.
"""

import asyncio
import logging
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from broker.app.asgi import for_port, serve_broker
from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.client.api import Api
from broker.client.stop import Stop
from broker.db.driver.database import Database
from broker.features.declarations.applying import carry_out_all, in_words, plan_for
from broker.features.declarations.declaring import turn_to_declare
from broker.features.declarations.plan import Step
from broker.features.declarations.reading import Declared, read_declarations
from broker.net.first_bytes import MakeProtocol
from broker.observability.log import reason, set_up_log

OWNER = "serve"  # in whose name it marks: `broker apply --prune` of other files leaves it alone
_CONNECTIONS = 100  # it is the only client

logger = logging.getLogger(__name__)


def run_applier(
    config: AppConfig, files: Sequence[str], project: str, log: tuple[str, str], pipe: Connection
) -> None:
    """Sends the exit code on the pipe, with what was done (0) or why it could not be done."""
    level, format_ = log
    set_up_log(level, format_)
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    try:
        outcome = 0, asyncio.run(_apply(config, files, project))
    except Stop as error:
        outcome = error.exit_code, str(error)
    except asyncio.CancelledError:
        outcome = 1, "the broker was stopped"
    except Exception as error:
        logger.debug("the declarations cannot be applied", exc_info=error)
        outcome = 1, reason(error)
    with suppress(OSError):  # the parent is gone
        pipe.send(outcome)


def _end_with_parent(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)


async def _apply(config: AppConfig, files: Sequence[str], project: str) -> str:
    declared = read_declarations(files, project)
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    database = Database(config.database_url, schema=config.database_schema, pool_size=1)
    try:
        with tempfile.TemporaryDirectory(prefix="broker-") as directory:
            path = str(Path(directory) / "socket")
            async with _serving(config, path), turn_to_declare(database):
                return await asyncio.to_thread(_carry_out, path, declared, project)
    finally:
        await database.close()


@asynccontextmanager
async def _serving(config: AppConfig, path: str) -> AsyncIterator[None]:
    """Runs a broker without authentication, on a socket that no other process can reach."""
    broker = Broker(config)
    broker.gate = None
    async with broker.running():
        app, state = serve_broker(broker), for_port(broker)
        make_protocol = MakeProtocol(most_connections=_CONNECTIONS)
        connections, tasks = set[Any](), set[asyncio.Task[Any]]()
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: make_protocol(app=app, state=state, connections=connections, tasks=tasks), path
        )
        try:
            yield
        finally:
            server.close()
            for connection in list(connections):
                connection.shutdown()


def _carry_out(path: str, declared: Declared, project: str) -> str:
    """Returns what there is to say.  Raises Stop."""
    with Api("http://localhost", unix_socket=path) as api:
        plan = plan_for(api, declared, project, owner=OWNER)
        if problems := [step for step in plan if step.problem]:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            first = problems[0]
            raise Stop(f"{first.kind} {first.name}: {first.problem}{more}")

        def report(step: Step) -> None:
            logger.info("by the declarations: %s", in_words(step, project))

        carry_out_all(api, plan, owner=OWNER, report=report)
    counts = {action: sum(step.action == action for step in plan) for action in ("create", "update", "none")}
    return (
        f"Applied to {project}: {counts['create']} created, {counts['update']} updated, "
        f"{counts['none']} as they were."
    )
