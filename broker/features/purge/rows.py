"""Purges the messages that match a filter from a subscription, delivered or not (G2).

One step is one transaction, with the locks of a discard: the cursor, then the rows that hold any of the messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.core.log.log_page import LogPosition
from broker.core.log.log_walk import LogWalk
from broker.core.log.walked_messages import read_matching
from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.model.errors import FailedPrecondition
from broker.model.journal import PURGED, Author

_READ_OLDEST_BACKLOG = statements.hot("read_oldest_backlog")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeStep:
    """A step of a purge: up to `max_messages` messages of one shard after a position."""

    meant: LogWalk
    after: LogPosition
    max_messages: int
    author: Author
    now: datetime


@dataclass(frozen=True, slots=True)
class Purged:
    """The outcome of each message of a step, by its sequence.

    `rest`: where the next step continues; None: the shard has no more messages.
    """

    outcomes: Mapping[int, Outcome]
    rest: LogPosition | None


async def read_oldest_backlog(
    connection: HotConnection, *, subscription_id: int, shard_ids: Sequence[int]
) -> dict[int, datetime]:
    """Returns a time by shard, before which no message of the subscription's backlog was published.

    Leaves out shards in which the subscription has no cursor.
    """
    asked = {"subscription_id": subscription_id, "shard_ids": list(shard_ids)}
    [rows] = await connection.run((_READ_OLDEST_BACKLOG, asked))
    return {row.shard_id: row.publish_time for row in rows}


async def purge_matching(connection: HotConnection, step: PurgeStep, attempt_ids: AttemptIds) -> Purged:
    """Drops the matching messages of one step within the caller's transaction.

    Raises FailedPrecondition (the subscription has no cursor: it was deleted or detached).
    """
    found, rest = await read_matching(connection, step.meant, step.after, step.max_messages)
    if not found:
        return Purged({}, rest)
    owner, shard_id = step.meant.subscription_id, step.after.shard_id
    by_shard = await lock_backlogs(
        connection, shard_ids=[], own=(owner, [shard_id]), consumable={owner}, now=step.now
    )
    if shard_id not in by_shard:
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    [backlog] = by_shard[shard_id]
    await backlog.read_ahead(connection, found)
    await lock_delivery_rows(connection, [backlog], found)
    held = [message for message in found if backlog.has(message, step.now)]
    until = backlog.go_past(held)
    if until is not None and held[-1].seq > until:  # too much stands before it: the next step goes on there
        cut = next(message for message in held if message.seq > until)
        held, rest = held[: held.index(cut)], LogPosition(shard_id, cut.publish_time, cut.seq - 1)
    outcomes = {message.seq: _outcome(backlog, message) for message in held}
    taken = [message for message in held if outcomes[message.seq] is Outcome.PURGED]
    writes = list(backlog.dropped(taken, attempt_ids, step.now, step.author, PURGED))
    if writes:
        await connection.run(*writes)
    return Purged(outcomes, rest)


async def count_matching(
    connection: HotConnection, meant: LogWalk, after: LogPosition, max_messages: int, *, now: datetime
) -> Purged:
    """Counts the messages that `purge_matching` would drop in one step.  Locks nothing and writes nothing.

    Raises FailedPrecondition (the subscription has no cursor: it was deleted or detached).
    """
    found, rest = await read_matching(connection, meant, after, max_messages)
    if not found:
        return Purged({}, rest)
    owner, shard_id = meant.subscription_id, after.shard_id
    backlogs = await lock_backlogs(
        connection, shard_ids=[], own=(owner, [shard_id]), consumable={owner}, now=now, locked=False
    )
    if shard_id not in backlogs:
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    [backlog] = backlogs[shard_id]
    await lock_delivery_rows(connection, [backlog], found, locked=False)
    held = [message for message in found if backlog.has(message, now)]
    return Purged({message.seq: _outcome(backlog, message) for message in held}, rest)


def _outcome(backlog: LockedBacklog, message: Any) -> Outcome:
    return Outcome.PURGED if backlog.reaches(message, None) else Outcome.OUTSTANDING
