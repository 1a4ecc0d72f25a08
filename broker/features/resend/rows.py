"""Resends retained messages to one subscription (G2).

It is part of one transaction, which the caller begins and ends.  As in a redrive, each message gets a row as if it
had never been delivered, for its own sequence.  Messages that are in the subscription's backlog anyway are left
unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from broker.core.backlog.bringing_back import brought_back
from broker.core.backlog.delivery_state import BACKLOG, TAKEN, DeliveryState
from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.core.log.retracted_sequences import read_retracted
from broker.core.process.attempt_ids import AttemptIds
from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.locks import HOLD_RETENTION
from broker.features.resend.resend import ANSWER
from broker.model.errors import FailedPrecondition
from broker.model.journal import Author
from broker.model.subscription import Subscription

_LOCATE_MESSAGES = statements.hot("locate_messages")
_READ_HEADS = statements.hot("read_heads")

Id = tuple[int, int]  # shard, sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """A request to resend messages of a subscription."""

    subscription: Subscription
    ids: Sequence[Id]
    author: Author
    now: datetime


async def resend(connection: HotConnection, asked: Resend, attempt_ids: AttemptIds) -> dict[Id, Outcome]:
    """Resends messages within the caller's transaction, which has read nothing of the log yet.

    Raises FailedPrecondition (no cursor: the subscription is deleted or detached).
    """
    subscription_id = asked.subscription.subscription_id
    shard_ids = sorted({shard_id for shard_id, _ in asked.ids} & {*asked.subscription.shard_ids})
    await connection.run((HOLD_RETENTION, {}))
    by_shard = await lock_backlogs(
        connection, shard_ids=[], own=(subscription_id, shard_ids), consumable=(), now=asked.now
    )
    if by_shard.keys() != {*shard_ids}:
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    outcomes = dict.fromkeys(asked.ids, Outcome.UNKNOWN)
    writes: list[Bound] = []
    for shard_id in shard_ids:
        seqs = sorted({seq for of_shard, seq in asked.ids if of_shard == shard_id})
        [backlog] = by_shard[shard_id]
        of_shard, again = await _judge(connection, asked, backlog, seqs)
        outcomes |= {(shard_id, seq): outcome for seq, outcome in of_shard.items()}
        if again:
            writes += brought_back(backlog, again, asked.author, ANSWER, attempt_ids, asked.now)
    if writes:
        await connection.run(*writes)
    return outcomes


async def _judge(
    connection: HotConnection, asked: Resend, backlog: LockedBacklog, seqs: Sequence[int]
) -> tuple[Mapping[int, Outcome], Sequence[Any]]:
    """Returns the outcomes of the messages that exist or existed, and those to resend, in the order of the log."""
    where = {"shard_ids": [backlog.shard_id] * len(seqs), "seqs": seqs}
    *found, heads = await connection.run(
        *by_shard(connection, _LOCATE_MESSAGES, where), (_READ_HEADS, {"shard_ids": [backlog.shard_id]})
    )
    located = list(chain(*found))
    head = max((head for _, head in heads), default=0)
    outcomes = {seq: Outcome.NOT_RETAINED for seq in seqs if 0 < seq <= head}
    missing = outcomes.keys() - {row.seq for row in located}
    if missing:
        retracted = await read_retracted(connection, shard_id=backlog.shard_id, seqs=missing)
        outcomes |= dict.fromkeys(retracted, Outcome.RETRACTED)
    messages = sorted(located, key=lambda row: row.seq)
    await lock_delivery_rows(connection, [backlog], messages)
    await backlog.ask_filter(connection, messages)
    again = []
    for message in messages:
        outcome = _outcome(backlog.state(message, asked.now))
        outcomes[message.seq] = outcome
        if outcome is Outcome.RESENT:
            again.append(message)
    return outcomes, again


def _outcome(state: DeliveryState) -> Outcome:
    if state in TAKEN:
        return Outcome.OUTSTANDING
    if state in BACKLOG:
        return Outcome.WAITING
    if state is DeliveryState.EXPIRED:  # a claim has yet to let it go, whatever is written now
        return Outcome.NOT_RETAINED
    return Outcome.FILTERED if state is DeliveryState.FILTERED else Outcome.RESENT
