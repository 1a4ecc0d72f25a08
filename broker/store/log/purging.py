"""Purging by a filter: what a subscription has of a kind is dropped, wherever it is (G2).

One step is one transaction, with the locks of a discard: the cursor, then the rows that hold any of the messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.domain.comparing import most_compared
from broker.domain.errors import FailedPrecondition
from broker.domain.journal import Author
from broker.domain.log_page import LogPosition
from broker.domain.purging import PurgeOutcome, ToPurge
from broker.store.driver import statements
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.piles import Hold, Pile, lock_letters, lock_piles

_FIND_MATCHING = statements.hot("find_matching")
_READ_OLDEST_STANDING = statements.hot("read_oldest_standing")

_ANSWER = "purged"  # of the journal's ACKED
_MAX_SCANNED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeStep:
    """In one shard, behind a position."""

    meant: ToPurge
    after: LogPosition
    max_messages: int
    author: Author
    now: datetime


@dataclass(frozen=True, slots=True)
class Purged:
    """What became of each message, by its sequence.  `rest`: where to go on; None: the shard has no more."""

    outcomes: Mapping[int, PurgeOutcome]
    rest: LogPosition | None


async def read_oldest_standing(
    connection: HotConnection, *, subscription_id: int, shard_ids: Sequence[int]
) -> dict[int, datetime]:
    """By shard, of those that the subscription has a cursor in."""
    asked = {"subscription_id": subscription_id, "shard_ids": list(shard_ids)}
    [rows] = await connection.run((_READ_OLDEST_STANDING, asked))
    return {row.shard_id: row.publish_time for row in rows}


async def purge_matching(connection: HotConnection, step: PurgeStep, attempt_ids: AttemptIds) -> Purged:
    """Within the caller's transaction.  Raises FailedPrecondition (no cursor: it is gone or detached)."""
    found, rest = await _find(connection, step)
    if not found:
        return Purged({}, rest)
    owner, shard_id = step.meant.subscription_id, step.after.shard_id
    by_shard = await lock_piles(connection, shard_ids=[], own=(owner, [shard_id]), consumable={owner}, now=step.now)
    if shard_id not in by_shard:
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    [pile] = by_shard[shard_id]
    await pile.look_ahead(connection, found)
    await lock_letters(connection, [pile], found)
    held = [message for message in found if pile.holds(message, step.now) in (Hold.OUT, Hold.HELD)]
    until = pile.go_past(held)
    if until is not None and held[-1].seq > until:  # too much stands before it: the next step goes on there
        cut = next(message for message in held if message.seq > until)
        held, rest = held[: held.index(cut)], LogPosition(shard_id, cut.publish_time, cut.seq - 1)
    outcomes = {message.seq: _outcome(pile, message) for message in held}
    taken = [message for message in held if outcomes[message.seq] is PurgeOutcome.PURGED]
    writes = list(pile.dropped(taken, attempt_ids, step.now, step.author, _ANSWER))
    if writes:
        await connection.run(*writes)
    return Purged(outcomes, rest)


def _outcome(pile: Pile, message: Any) -> PurgeOutcome:
    return PurgeOutcome.PURGED if pile.reaches(message, None) else PurgeOutcome.OUTSTANDING


async def _find(connection: HotConnection, step: PurgeStep) -> tuple[list[Any], LogPosition | None]:
    """The next that match, and how far it was read; None: to the end."""
    meant, after = step.meant, step.after
    asked = {
        "shard_id": after.shard_id,
        "after_publish_time": after.publish_time,
        "after_seq": after.seq,
        "until": meant.until,
        "filter_path": meant.filter_path,
        "body_path": meant.body_path,
        "max_scanned": most_compared(_MAX_SCANNED, meant.body_path),
        "max_matched": step.max_messages + 1,  # one more may be the last scanned
    }
    [rows] = await connection.run((_FIND_MATCHING, asked))
    if not rows:
        return [], None
    last = meant.ends[after.shard_id]
    found = [row for row in rows if row.matches][: step.max_messages]
    end = found[-1] if len(found) == step.max_messages else rows[-1]
    rest = None if end.seq >= last else LogPosition(after.shard_id, end.publish_time, end.seq)
    return [row for row in found if row.seq <= last], rest
