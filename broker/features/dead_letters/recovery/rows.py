"""Selects the messages that are pushed again, one step in one transaction (G2).

A step locks the cursor, reads the next messages of the log, locks the rows that have any of them, and then reads
the journal.  Acks do not lock the cursor: before the rows are locked, the journal might lack an ack that is being
written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.core.backlog.bringing_back import brought_back
from broker.core.backlog.delivery_state import BACKLOG, TAKEN, DeliveryState
from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.core.log.log_page import LogPosition
from broker.core.log.walked_messages import read_matching
from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.locks import HOLD_RETENTION
from broker.features.dead_letters.recovery.push_replay import Meant, Missed
from broker.model.errors import FailedPrecondition
from broker.model.journal import (
    BUCKET,
    DISCARDED,
    PURGED,
    PUSH,
    SETTLING,
    SPAN,
    TIME_TO_LIVE,
    UNSETTLING,
    Author,
    Event,
)
from broker.model.sequences import to_multirange
from broker.model.subscription import Subscription
from broker.model.timestamps import EVER

_FIND_EXPIRED = statements.hot("find_expired")
_FIND_LAST_JOURNALED = statements.hot("find_last_journaled")
_FIND_GIVEN_UP = statements.hot("find_given_up")
_LOCATE_MESSAGES = statements.hot("locate_messages")

ANSWERS = {Missed.EXPIRED: "recovered", Missed.UNSEEN: "replayed"}  # how the journal's REPLAYED is answered then
_MAX_READ = 10_000  # messages of a step, of which most have not expired
_EVENTS = sorted(SETTLING | UNSETTLING - {Event.HANDED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStep:
    """A step in one shard, after a position."""

    meant: Meant
    after: LogPosition
    max_messages: int
    author: Author
    now: datetime


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome for each message, by sequence.  `rest`: where to continue (None: the shard has no more)."""

    outcomes: Mapping[int, Outcome]
    rest: LogPosition | None


@dataclass(frozen=True, slots=True)
class Expired:
    """Bounds for the expired messages of a shard: the earliest publish time, the last sequence, and
    about how many.
    """

    start: datetime
    last_seq: int
    count: int


async def replay_pushes(connection: HotConnection, step: ReplayStep, attempt_ids: AttemptIds) -> Replayed:
    """Runs a step within the caller's transaction, which has read nothing of the log yet.

    Raises FailedPrecondition (no cursor: the subscription was deleted or detached).
    """
    await connection.run((HOLD_RETENTION, {}))
    owner, shard_id = step.meant.walk.subscription_id, step.after.shard_id
    by_shard = await lock_backlogs(connection, shard_ids=[], own=(owner, [shard_id]), consumable=(), now=step.now)
    if shard_id not in by_shard:
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    [backlog] = by_shard[shard_id]
    messages, rest = await _next(connection, step, backlog)
    if not messages:
        return Replayed({}, rest)
    await lock_delivery_rows(connection, [backlog], messages)
    outcomes = {message.seq: _held(backlog, message, step.now) for message in messages}
    free = [message for message in messages if outcomes[message.seq] is None]
    outcomes |= await _judge(connection, step, backlog, free)
    again = [message for message in free if outcomes[message.seq] is Outcome.REPLAYED]
    if again:
        answer = ANSWERS[step.meant.missed]
        await connection.run(*brought_back(backlog, again, step.author, answer, attempt_ids, step.now))
    return Replayed({seq: outcome for seq, outcome in outcomes.items() if outcome is not None}, rest)


async def _next(
    connection: HotConnection, step: ReplayStep, backlog: LockedBacklog
) -> tuple[Sequence[Any], LogPosition | None]:
    """Returns the messages of this step, and where the next one continues."""
    if step.meant.missed is Missed.UNSEEN:
        return await read_matching(connection, step.meant.walk, step.after, step.max_messages)
    found, rest = await read_matching(connection, step.meant.walk, step.after, _MAX_READ)
    reported = await _read_journal(
        connection, backlog, found
    )  # only who has the cursor makes one of them come again
    expired = [message for message in found if _is_expired(step.meant, reported.get(message.seq))]
    if len(expired) > step.max_messages:
        last = expired[step.max_messages - 1]
        return expired[: step.max_messages], LogPosition(backlog.shard_id, last.publish_time, last.seq)
    return expired, rest


def _is_expired(meant: Meant, reported: Any) -> bool:
    """Returns whether a message expired by the subscription's retention.  Those whose own time to live ended stay
    expired.
    """
    if reported is None or reported.event != Event.EXPIRED or reported.answer == TIME_TO_LIVE:
        return False
    return bool(meant.since <= reported.time <= meant.until)


def _held(backlog: LockedBacklog, message: Any, now: datetime) -> Outcome | None:
    """Returns the outcome for a message that is in the backlog or past its time, None if it is settled."""
    state = backlog.state(message, now)
    if state in TAKEN:
        return Outcome.OUTSTANDING
    if state in BACKLOG:
        return Outcome.WAITING
    if message.expires_at is not None and message.expires_at <= now:
        return Outcome.EXPIRED
    return Outcome.NOT_RETAINED if state is DeliveryState.EXPIRED else None


async def _judge(
    connection: HotConnection, step: ReplayStep, backlog: LockedBacklog, messages: Sequence[Any]
) -> dict[int, Outcome | None]:
    """Returns the outcomes for settled messages.  Called once their rows are locked."""
    if step.meant.missed is Missed.EXPIRED or not messages:
        return {message.seq: Outcome.REPLAYED for message in messages}
    reported = await _read_journal(connection, backlog, messages)
    asked = {"source_shard_id": backlog.shard_id, "subscription_id": backlog.subscription_id}
    [dead_letters] = await connection.run((_FIND_GIVEN_UP, asked | {"seqs": [message.seq for message in messages]}))
    given_up = {row.source_seq for row in dead_letters}
    return {
        message.seq: Outcome.DEAD_LETTERED
        if message.seq in given_up
        else _outcome(step.meant, reported.get(message.seq))
        for message in messages
    }


def _outcome(meant: Meant, reported: Any) -> Outcome:
    """Returns the outcome for a settled message.

    A message without an entry in the journal counts as missing: a duplicate is better than a loss.
    """
    if reported is None or reported.event != Event.ACKED:
        return Outcome.REPLAYED
    if reported.answer in (DISCARDED, PURGED):
        return Outcome.DISCARDED
    is_taken = reported.client == PUSH.client and reported.time >= meant.since
    return Outcome.DELIVERED if is_taken else Outcome.REPLAYED


async def _read_journal(
    connection: HotConnection, backlog: LockedBacklog, messages: Sequence[Any]
) -> dict[int, Any]:
    """Returns the last entry of each message, by sequence, that says that it was settled or brought back."""
    seqs = [message.seq for message in messages]
    asked = {
        "shard_id": backlog.shard_id,
        "subscription_id": backlog.subscription_id,
        "buckets": sorted({SPAN, *(seq // BUCKET for seq in seqs)}),
        "seqs": to_multirange(seqs),
        "events": _EVENTS,
    }
    [rows] = await connection.run((_FIND_LAST_JOURNALED, asked)) if seqs else [[]]
    return {row.seq: row for row in rows}


async def find_expired(
    connection: HotConnection, *, subscription: Subscription, since: datetime, until: datetime
) -> dict[int, Expired]:
    """Returns the bounds for expired messages by shard, as the journal has them."""
    where = {"subscription_id": subscription.subscription_id, "shard_ids": list(subscription.shard_ids)}
    [rows] = await connection.run((_FIND_EXPIRED, where | {"since": since, "until": until}))
    firsts = {"shard_ids": [row.shard_id for row in rows], "seqs": [row.first_seq for row in rows]}
    located = await run_by_shard(connection, _LOCATE_MESSAGES, firsts)
    starts = {row.shard_id: row.publish_time for row in located}
    return {row.shard_id: Expired(starts.get(row.shard_id, EVER), row.last_seq, row.count) for row in rows}
