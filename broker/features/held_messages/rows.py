"""Reads in which rows messages of a subscription are that are with a consumer, or are retried (G2)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from broker.core.backlog.delivery_state import DeliveryState
from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard
from broker.db.driver.hot_connection import HotConnection
from broker.model.ack_id import AttemptName
from broker.model.subscription import Subscription

_LOCATE_MESSAGES = statements.hot("locate_messages")

Id = tuple[int, int]  # shard, sequence


class Held(NamedTuple):
    """The state of a message, and the row that has it.

    `attempt` is None if no row has it.  `is_out`: ack ids of that row name the message, as its `ordinal`.
    """

    state: DeliveryState
    attempt: AttemptName | None = None
    ordinal: int = 0
    is_out: bool = False


async def read_held(
    connection: HotConnection, subscription: Subscription, ids: Sequence[Id], *, now: datetime
) -> Mapping[Id, Held]:
    """Returns those of the messages that the log has of the subscription's topic.  Locks nothing."""
    shard_ids = sorted({shard_id for shard_id, _ in ids} & {*subscription.shard_ids})
    if not shard_ids:
        return {}
    backlogs = await lock_backlogs(
        connection,
        shard_ids=[],
        own=(subscription.subscription_id, shard_ids),
        consumable=(),
        now=now,
        locked=False,
    )
    found: dict[Id, Held] = {}
    for shard_id, [backlog] in backlogs.items():
        messages = await _locate(connection, shard_id, [seq for of, seq in ids if of == shard_id])
        await lock_delivery_rows(connection, [backlog], messages, locked=False)
        found |= {(shard_id, message.seq): _held(backlog, message, now) for message in messages}
    return found


async def _locate(connection: HotConnection, shard_id: int, seqs: Sequence[int]) -> Sequence[Any]:
    where = {"shard_ids": [shard_id] * len(seqs), "seqs": list(seqs)}
    return list(chain(*await connection.run(*by_shard(connection, _LOCATE_MESSAGES, where))))


def _held(backlog: LockedBacklog, message: Any, now: datetime) -> Held:
    state, place = backlog.state(message, now), backlog.place_of(message)
    return Held(state) if place is None else Held(state, *place)
