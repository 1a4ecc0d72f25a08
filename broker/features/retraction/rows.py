"""Reads and writes `retracted_messages`, which no other module writes (J6)."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from broker.core.log.deleting import run_behind_log
from broker.db.driver import statements
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.features.retraction.retraction import Retraction, StateWhenRetracted

_READ_RETRACTIONS = statements.hot("read_retractions")
_INSERT_RETRACTIONS = statements.hot("insert_retractions")
_NAME_REPLACEMENT = statements.hot("name_replacement")
_DELETE_RETRACTIONS = statements.load("delete_retractions")

_decode_states = msgspec.json.Decoder(dict[StateWhenRetracted, list[int]]).decode
_encode_json = msgspec.json.Encoder().encode

_KEPT = timedelta(days=1)

Id = tuple[int, int]  # a shard, and what an id is made of


async def read_retractions(connection: HotConnection, ids: Mapping[Id, int | None]) -> dict[Id, Retraction]:
    """Returns the retractions of some messages, given by id with their sequences (None: still scheduled)."""
    asked = {
        "shard_ids": [shard_id for shard_id, _ in ids],
        "id_seqs": [id_seq for _, id_seq in ids],
        "seqs": list(ids.values()),
        "numbers": list(range(len(ids))),
    }
    rows = await run_by_shard(connection, _READ_RETRACTIONS, asked)
    by_number = list(ids)
    return {by_number[row.number]: _retraction(row) for row in rows}


def _retraction(row: Any) -> Retraction:
    states = _decode_states(row.states or "{}")
    replaced = row.replacement_shard_id is not None
    return Retraction(
        shard_id=row.shard_id,
        seq=row.seq,
        publish_time=row.publish_time,
        retracted_at=row.retracted_at,
        by=row.retracted_by,
        head=row.head,
        states={subscription_id: each for each, some in states.items() for subscription_id in some},
        replaced_by=(row.replacement_shard_id, row.replacement_id_seq) if replaced else None,
        cancelled=bool(row.cancelled),
    )


def insertions(retractions: Mapping[Id, Retraction]) -> Iterator[Bound]:
    """Yields statements that store all retractions of one transaction."""
    of_shard: dict[int, dict[int, Retraction]] = {}
    for (shard_id, id_seq), made in retractions.items():
        of_shard.setdefault(shard_id, {})[id_seq] = made
    for shard_id, some in of_shard.items():
        first = next(iter(some.values()))
        yield (
            _INSERT_RETRACTIONS,
            {
                "shard_id": shard_id,
                "id_seqs": list(some),
                "seqs": [made.seq for made in some.values()],
                "publish_times": [made.publish_time for made in some.values()],
                "now": first.retracted_at,
                "by": first.by,
                "head": first.head,
                "states": [_states_json(made) for made in some.values()],
            },
        )


def _states_json(made: Retraction) -> str | None:
    if not made.states:
        return None
    grouped: dict[str, list[int]] = {}
    for subscription_id, state in made.states.items():
        grouped.setdefault(state, []).append(subscription_id)
    return _encode_json(grouped).decode()


async def name_replacement(connection: HotConnection, *, of: Id, replacement: Id) -> None:
    """Stores the id of a replacement, within the transaction that retracts the message."""
    named = {"replacement_shard_id": replacement[0], "replacement_id_seq": replacement[1]}
    await connection.run((_NAME_REPLACEMENT, {"shard_id": of[0], "id_seq": of[1], **named}))


async def delete_retractions(connection: Connection, *, now: datetime) -> int:
    """Deletes records of messages that the log would no longer have, after a day.  Returns how many."""
    return await run_behind_log(connection, _DELETE_RETRACTIONS, until=now - _KEPT)
