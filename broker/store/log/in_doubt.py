"""Commits of several nodes whose end one of them has not heard of: Citus ends them, within a minute (L1)."""

from broker.store.driver import statements
from broker.store.driver.database import Connection
from broker.store.engine.engine import find_engine

_READ_PREPARED = statements.load("read_prepared")
_LOOKS = 20  # what is merely under way is over by then


async def is_nothing_in_doubt(connection: Connection) -> bool:
    """Whether all that was prepared on any node when this was asked can be seen, or is undone.

    What is prepared and not committed is seen by nobody, though whoever sent it has gone, and his locks on the
    coordinator with him.
    """
    if not (await find_engine(connection)).is_distributed:
        return True
    left = await _prepared(connection)
    for _ in range(_LOOKS):
        if not left:
            break
        left &= await _prepared(connection)
    return not left


async def _prepared(connection: Connection) -> set[tuple[int, str]]:
    """By node, with its name there; what a node that is away has is not known, and counts as one."""
    found: set[tuple[int, str]] = set()
    for node, answers, gids in await (await connection.execute(_READ_PREPARED)).fetchall():
        found |= {(node, gid) for gid in gids.split()} if answers else {(node, "")}
    return found
