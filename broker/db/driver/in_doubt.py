"""Commits on several nodes of whose outcome one node has not been informed.  Citus resolves them within a minute
(L1).
"""

from datetime import datetime

from broker.db.citus.engine import find_engine
from broker.db.citus.prepared import LONG_SECONDS, READ_PREPARED, WHAT_TO_DO
from broker.db.driver.database import Connection
from broker.model.errors import Unavailable
from broker.observability.state_changes import StateChanges

_CHECKS = 20  # transactions that are merely in progress have ended by then
_PATIENT_CHECKS = 100
_BY_CITUS = "citus_"  # the prefix of transactions that Citus itself has prepared
_KIND = "commits in doubt"


async def is_nothing_in_doubt(connection: Connection) -> bool:
    """Whether everything that is prepared on any node when this is called has become visible, or is undone.

    A prepared transaction that is not committed is invisible, even after its session, with its locks on the
    coordinator, has ended.
    """
    if not (await find_engine(connection)).is_distributed:
        return True
    left = await _prepared(connection)
    for _ in range(_CHECKS):
        if not left:
            break
        left &= await _prepared(connection)
    return not left


async def _prepared(connection: Connection) -> set[tuple[str, str]]:
    """Returns the prepared transactions by node, with their names there.

    The transactions of a node that does not answer are not known, and count as one.
    """
    found: set[tuple[str, str]] = set()
    for node, answers, prepared in await (await connection.execute(READ_PREPARED)).fetchall():
        found |= {(node, gid) for gid, _ in prepared} if answers else {(node, "")}
    return found


async def wait_until_heard(connection: Connection) -> None:
    """Waits until the nodes have all commits that were made together with a locked row of the catalog.

    Call it with that lock.  The coordinator's commit is seen a moment before theirs, or a minute where one was
    killed in between.  A transaction that goes on from such a row to its shards would not find them, or not all of
    their cursors, and leave them out for ever.  A node that is away is not waited for: a statement that needs it
    fails by itself.  Raises Unavailable.
    """
    if not (await find_engine(connection)).is_distributed:
        return
    left = {each for each in await _prepared(connection) if each[1].startswith(_BY_CITUS)}
    for _ in range(_PATIENT_CHECKS):
        if not left:
            return
        left &= await _prepared(connection)
    raise Unavailable("A node has not heard yet how an earlier change ended; try again.")


async def report_in_doubt(connection: Connection, *, now: datetime, states: StateChanges) -> None:
    """Reports nodes that wait for longer than Citus takes: the rows that they have locked cannot be changed."""
    del now  # each node has its own
    if not (await find_engine(connection)).is_distributed:
        return
    for node, answers, prepared in await (await connection.execute(READ_PREPARED)).fetchall():
        waiting = [(seconds, gid) for gid, seconds in prepared or () if seconds > LONG_SECONDS]
        if waiting:
            seconds, gid = max(waiting)
            why = f"{gid}, and {len(waiting) - 1} more" if len(waiting) > 1 else gid
            what = f"the node {node} does not hear how a commit ended, and keeps its locks"
            states.begins(_KIND, node, what, f"{why}; {WHAT_TO_DO}", lasted=seconds)
        elif answers:
            states.ends(_KIND, node, f"the node {node} has heard how all commits ended")
