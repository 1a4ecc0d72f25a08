"""The oldest publish times that anything may still want."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from broker.db.citus.engine import find_engine
from broker.db.driver import statements
from broker.db.driver.database import Connection

_READ_OLDEST_PINS = statements.load("read_oldest_pins")
_READ_PINS_ON_NODES = statements.load("read_pins_on_nodes")
_READ_RETENTIONS = statements.load("read_retentions")
_READ_LIVES = b"SELECT snapshot_id, expire_time > %s FROM snapshots"

Pins = tuple[datetime | None, datetime | None]


async def read_oldest_pins(connection: Connection, *, now: datetime) -> Pins:
    """Of everything but delivery attempts, and of those, as read_oldest_pins.sql has it (None: nothing)."""
    if (await find_engine(connection)).is_distributed:
        return await _read_on_nodes(connection, now)
    row = await (await connection.execute(_READ_OLDEST_PINS, {"now": now})).fetchone()
    assert row is not None
    return row[0], row[1]


async def _read_on_nodes(connection: Connection, now: datetime) -> Pins:
    """The shards first, the catalog behind them.

    Whatever goes away meanwhile may only pin for longer: of a snapshot that the catalog does not know by then, a
    seek may have begun to deliver.  What comes into being meanwhile stands at its shards' ends, or copies what is
    pinned.
    """
    pins = await (await connection.execute(_READ_PINS_ON_NODES)).fetchall()
    retentions = await (await connection.execute(_READ_RETENTIONS, {"now": now})).fetchall()
    lives = dict(await (await connection.execute(_READ_LIVES, [now])).fetchall())
    since = {id_: (time, detached) for id_, time, detached, _ in retentions if id_ is not None}
    times = [time for *_, time, _, retains in retentions if retains and time is not None]
    times += [time for kind, owner, time in pins if kind == "snapshot" and lives.get(owner, True)]
    times += _wanted(("cursor", "key", "key redriven"), pins, since)
    attempts = list(_wanted(("attempt", "attempt redriven"), pins, since))
    return min(times, default=None), min(attempts, default=None)


def _wanted(
    kinds: Iterable[str], pins: Iterable[Any], since: dict[int, tuple[datetime, bool]]
) -> Iterator[datetime]:
    """Of subscriptions that exist: no further back than they retain, but for what came back to them."""
    for kind, owner, time in pins:
        if kind in kinds and owner in since:
            retained, detached = since[owner]
            if kind == "cursor" or not detached:
                yield time if kind.endswith("redriven") else max(time, retained)
