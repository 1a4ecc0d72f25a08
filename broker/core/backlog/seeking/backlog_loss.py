"""What is lost with a subscription: the messages that it has, and its dead letters, which cannot be redriven."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from broker.core.backlog.seeking.cursors import ShardSeek, position_at
from broker.core.backlog.seeking.preview import in_all
from broker.core.backlog.seeking.previews import FOR_COUNTS, FOR_LIMITS, Holding, compare, read_holding
from broker.core.catalog.cursor_locks import lock_cursors_of, lock_heads
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.model.preview import MAX_REFERENCES, Preview, Reference, Referrer, Safeguards
from broker.model.subscription import Subscription
from broker.model.timestamps import END_OF_TIME

_LIST_SUBSCRIPTION_REFERENCES = statements.load("list_subscription_references")
_COUNT_OPEN_DEAD_LETTERS = statements.load("count_open_dead_letters")

_MAX_DEAD_LETTERS = 10_000  # that are counted


async def measure_backlog(
    connection: ResourceConnection, subscription: Subscription, *, now: datetime, safeguards: Safeguards
) -> Preview:
    """Counts what a subscription has that is not acknowledged: what a purge of all of it would drop.

    The caller has locked the subscription.  This locks its cursors and attempts.  If `safeguards` limit an action
    that is to be made, it locks the heads of its shards too, so that what is counted is what the transaction
    removes; a preview removes nothing, and so keeps nobody from publishing.  Raises Aborted (messages came after
    `asOf`).
    """
    await lock_cursors_of(connection, subscription.subscription_id)
    shards = [
        ShardSeek(
            shard_id=shard_id,
            subscription_id=subscription.subscription_id,
            ordered=subscription.enable_message_ordering,
            now=now,
            first_attempt_id=0,
            retained_since=now - subscription.retention,
            filter_path=subscription.filter_path,
            body_path=subscription.body_path,
        )
        for shard_id in sorted(subscription.shard_ids)
    ]
    held = [(shard, await read_holding(connection, shard)) for shard in shards]
    if safeguards.is_limited and not safeguards.validate_only:
        await lock_heads(connection, shard_ids=[shard.shard_id for shard in shards])
    found = []
    for shard, holding in held:
        if holding is not None:  # else the subscription is detached
            nothing = Holding(*await position_at(connection, shard, END_OF_TIME))
            effort = FOR_LIMITS if safeguards.is_limited else FOR_COUNTS
            found.append(await compare(connection, shard, holding, nothing, time=None, effort=effort))
    backlog = in_all(found)
    safeguards.check_newest(backlog.newest, f"A message came to {subscription.name}")
    where = {"shard_ids": list(subscription.shard_ids), "subscription_id": subscription.subscription_id}
    counting = await connection.exec_driver_sql(_COUNT_OPEN_DEAD_LETTERS, where | {"most": _MAX_DEAD_LETTERS})
    asked = {"subscription": subscription.name, "most": MAX_REFERENCES}
    rows: Sequence[Any] = (await connection.exec_driver_sql(_LIST_SUBSCRIPTION_REFERENCES, asked)).all()
    return Preview(
        count=backlog.skipped.messages,
        unit="message",
        time=now,
        losses={
            "messages": backlog.skipped.messages,
            "bytes": backlog.skipped.size,
            "deadLetters": counting.scalar_one(),
        },
        is_estimated=backlog.is_estimated,
        references=[Reference(name=name, referrer=Referrer.OPERATION) for name, _ in rows],
        reference_count=rows[0][1] if rows else 0,
    )
