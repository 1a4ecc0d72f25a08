"""Creates the owner's key in a process of its own, whose imports the parent process must not keep in memory."""

import asyncio
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

from broker.cli.server.child_process import CONTEXT, start_deaf
from broker.client.private_file import write_private_file
from broker.client.stop import Stop

FILE_NAME = "admin-key.json"  # in the data directory


def make_admin_key(database_url: str, schema: str, *, base_url: str, path: Path) -> None:
    """Make a key, and write it to a file that only its owner may read.  Raises Stop."""
    _in_a_process(database_url, schema, base_url, path)


def is_administered(database_url: str, schema: str) -> bool:
    """Whether a principal owns everything.  Raises Stop."""
    return _in_a_process(database_url, schema, "", None)


def _in_a_process(database_url: str, schema: str, base_url: str, path: Path | None) -> bool:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_answer, args=(database_url, schema, base_url, path, theirs), name="admin key")
    start_deaf(process)
    theirs.close()
    answer: bool | str
    try:
        answer = ours.recv()
    except EOFError:
        answer = "the process that makes the first key ended without a word"
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.join()
    if isinstance(answer, str):
        raise Stop(answer)
    return answer


def _answer(database_url: str, schema: str, base_url: str, path: Path | None, pipe: Connection) -> None:
    from broker.model.errors import BrokerError, os_reason

    try:
        pipe.send(asyncio.run(_run(database_url, schema, base_url, path)))
    except BrokerError as error:
        pipe.send(f"the first key cannot be made: {error.message}")
    except OSError as error:
        pipe.send(f"the first key cannot be written to {path}: {os_reason(error)}")


async def _run(database_url: str, schema: str, base_url: str, path: Path | None) -> bool:
    from broker.access.bootstrap import has_admin, make_admin_key
    from broker.access.credentials.key_pairs import make_key_pair
    from broker.db.driver.database import Database

    database = Database(database_url, schema=schema, pool_size=1)
    try:
        if path is None:
            return await has_admin(database)
        now: datetime = await database.now()
        await make_admin_key(
            database,
            pair=make_key_pair(),
            base_url=base_url,
            now=now,
            write=lambda text: write_private_file(path, text),
        )
        return True
    finally:
        await database.close()
