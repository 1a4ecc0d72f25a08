"""Reads and writes the tables of the sampler: `lag_samples`, `lag_orders` and `lag_passes`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, BigInteger, any_, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from broker.db.driver import named, statements
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.hot_connection import HotConnection
from broker.db.schema.tables import lag_passes, subscriptions
from broker.features.lag_board.sample import MAX_DEAD_LETTERS, LagSample

KEPT = timedelta(minutes=10)  # an order, once there is a newer one: lists go on in the order in which they began

_NEXT_TO_SAMPLE = statements.hot("next_to_sample")
_FIND_MOVED = statements.hot("find_moved")
_COUNT_DEAD_LETTERS_OF = statements.hot("count_dead_letters_of")
_WRITE_LAG_SAMPLES = statements.load("write_lag_samples")
_WRITE_LAG_ORDERS = statements.load("write_lag_orders")

_FORGET_SAMPLES = b"""
    DELETE FROM lag_samples AS l
    WHERE NOT EXISTS (SELECT FROM subscriptions AS s WHERE s.subscription_id = l.subscription_id)
"""
_FORGET_ORDERS = b"""
    DELETE FROM lag_orders AS o
    WHERE EXISTS (
        SELECT FROM lag_orders AS n
        WHERE n.project = o.project AND n.order_by = o.order_by AND n.began_at > o.began_at AND n.began_at < %s
    ) OR NOT EXISTS (
        SELECT FROM subscriptions AS s
        WHERE s.name > o.project || '/subscriptions/' COLLATE "C"
          AND s.name < o.project || '/subscriptions0' COLLATE "C"
    )
"""


@dataclass(frozen=True, slots=True)
class SamplePass:
    """A pass over all subscriptions, which has sampled those with names up to `after`.

    `confirmed_at`: when the last complete pass began (None: there is none).
    """

    began_at: datetime
    after: str
    confirmed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Window:
    """A range of subscriptions in the order of names, up to `last_name`, and those of them that are due to be
    sampled.

    `dead_letters`: how many each has; subscriptions without any are left out.  `is_last`: no name follows.
    """

    last_name: str
    due_ids: Sequence[int]
    dead_letters: Mapping[int, int]
    is_last: bool


async def take_pass(connection: ResourceConnection, *, now: datetime) -> SamplePass | None:
    """Locks the pass that is under way until the transaction ends, or begins one.

    Returns None if none is due, or another process has locked it.
    """
    next_at = await connection.scalar(select(lag_passes.c.next_at))
    if next_at is None:  # the table is new, or the server has crashed
        await connection.execute(insert(lag_passes).values(next_at=now).on_conflict_do_nothing())
    elif next_at > now:
        return None
    due = select(lag_passes).where(lag_passes.c.next_at <= now).with_for_update(skip_locked=True)
    row = (await connection.execute(due)).one_or_none()
    return None if row is None else SamplePass(row.began_at or now, row.after, row.sampled_at)


async def leave_pass(
    connection: ResourceConnection, sample_pass: SamplePass, *, is_complete: bool, next_at: datetime
) -> None:
    """Stores how far the pass has come, and when it is due again."""
    values: dict[str, Any] = {"began_at": sample_pass.began_at, "after": sample_pass.after}
    if is_complete:
        values = {"began_at": None, "after": "", "sampled_at": sample_pass.began_at}
    await connection.execute(update(lag_passes).values(next_at=next_at, **values))


async def next_to_sample(connection: HotConnection, *, after: str, max_rows: int) -> Window:
    """Returns the next `max_rows` subscriptions by name, and which of them are due to be sampled.

    Subscriptions at rest are due if they have received messages, or their number of dead letters has changed.
    """
    [[row]] = await connection.run((_NEXT_TO_SAMPLE, {"after": after, "max_rows": max_rows}))
    resting = {"subscription_ids": row.resting_ids, "published": row.resting_published}
    counted = {"subscription_ids": row.counted_ids, "max_counted": MAX_DEAD_LETTERS}
    moved, letters = await connection.run((_FIND_MOVED, resting), (_COUNT_DEAD_LETTERS_OF, counted))
    dead_letters = {each.subscription_id: each.count for each in letters}
    before = zip(row.counted_ids, row.counts, strict=True)
    due = {*row.due_ids, *(each.subscription_id for each in moved)}
    due.update(id_ for id_, count in before if dead_letters.get(id_, 0) != count)
    return Window(row.last_name or after, sorted(due), dead_letters, is_last=row.found < max_rows)


async def count_dead_letters_of(connection: HotConnection, *, subscription_ids: Sequence[int]) -> Mapping[int, int]:
    """Returns the number of unresolved dead letters of each subscription that has any, up to MAX_DEAD_LETTERS."""
    asked = {"subscription_ids": subscription_ids, "max_counted": MAX_DEAD_LETTERS}
    [rows] = await connection.run((_COUNT_DEAD_LETTERS_OF, asked))
    return {row.subscription_id: row.count for row in rows}


async def read_names(connection: ResourceConnection, *, subscription_ids: Sequence[int]) -> Mapping[int, str]:
    """Returns the names of the subscriptions with these ids, as far as they exist, by id."""
    wanted = subscriptions.c.subscription_id == any_(literal(subscription_ids, ARRAY(BigInteger)))
    rows = await connection.execute(select(subscriptions.c.subscription_id, subscriptions.c.name).where(wanted))
    return {row.subscription_id: row.name for row in rows}


async def write_samples(
    connection: ResourceConnection,
    samples: Sequence[LagSample],
    *,
    sampled_at: datetime,
    confirmed_at: datetime | None,
) -> None:
    columns = [
        *("subscription_id", "undelivered_messages", "is_estimated", "undelivered_bytes", "oldest_unacked_at"),
        *("outstanding_messages", "blocked_messages", "dead_letters", "published_messages", "state"),
    ]
    values: dict[str, Any] = {name: [getattr(sample, name) for sample in samples] for name in columns}
    values["details"] = [json.dumps(sample.details) for sample in samples]
    times = {"sampled_at": sampled_at, "confirmed_at": confirmed_at}
    await named.change(connection, _WRITE_LAG_SAMPLES, values | times)


async def write_orders(
    connection: ResourceConnection, *, after: str, before: str | None, began_at: datetime
) -> None:
    """Writes the orders of the projects whose subscriptions have names between these (`before`
    None: to the end).
    """
    given = {"after": after, "before": before, "began_at": began_at}
    await named.change(connection, _WRITE_LAG_ORDERS, given)


async def forget_old_samples(connection: Connection, *, now: datetime) -> None:
    """Deletes the samples of deleted subscriptions, and orders that no list needs any more."""
    await connection.execute(_FORGET_SAMPLES)
    await connection.execute(_FORGET_ORDERS, [now - KEPT])
