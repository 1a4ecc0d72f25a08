"""Runs read_oldest_pins.sql on distributed tables, which no statement joins with the catalog."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from broker.db.driver import statements
from broker.db.driver.database import Connection

_READ_PINS_OF_OWNERS = statements.load("read_pins_of_owners")
_READ_RETENTIONS = statements.load("read_retentions")
_READ_LIVES = b"SELECT snapshot_id, expire_time > %(now)s FROM snapshots"


async def read_oldest_pins(connection: Connection, given: Mapping[str, Any]) -> list[Any]:
    """Reads the shards first, and the catalog behind them.

    What is deleted meanwhile may only pin for longer: a seek may have begun to deliver from a snapshot that the
    catalog does not have by then.  What is created meanwhile starts at the ends of its shards, or copies pins.
    """
    pins = await (await connection.execute(_READ_PINS_OF_OWNERS)).fetchall()
    retentions = await (await connection.execute(_READ_RETENTIONS, given)).fetchall()
    lives = dict(await (await connection.execute(_READ_LIVES, given)).fetchall())
    since = {id_: (time, detached) for id_, time, detached, _ in retentions if id_ is not None}
    times = [time for *_, time, _, retains in retentions if retains and time is not None]
    times += [time for kind, owner, time in pins if kind == "snapshot" and lives.get(owner, True)]
    times += _wanted(("cursor", "key", "key redriven"), pins, since)
    attempts = list(_wanted(("attempt", "attempt redriven"), pins, since))
    return [(min(times, default=None), min(attempts, default=None))]


def _wanted(
    kinds: Iterable[str], pins: Iterable[Any], since: dict[int, tuple[datetime, bool]]
) -> Iterator[datetime]:
    """Yields the pins of subscriptions that exist: no older than they retain, except for redriven messages."""
    for kind, owner, time in pins:
        if kind in kinds and owner in since:
            retained, detached = since[owner]
            if kind == "cursor" or not detached:
                yield time if kind.endswith("redriven") else max(time, retained)
