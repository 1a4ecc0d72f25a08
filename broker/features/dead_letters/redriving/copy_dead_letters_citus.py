"""Runs copy_dead_letters.sql on distributed tables, where no statement copies from one node to another."""

from collections.abc import Mapping
from datetime import datetime
from struct import Struct
from typing import Any

import msgspec

from broker.db.driver import statements
from broker.db.driver.binary import OIDS, array
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.features.dead_letters.dead_letter_groups import read_dead_letter_bodies
from broker.model.message import NewMessage

_PUT_BACK_DEAD_LETTERS = statements.hot("put_back_dead_letters")

_LENGTH = Struct("!i").pack
_encode_json = msgspec.json.Encoder().encode

_Source = tuple[datetime, int]  # a message of the log: its publish time and sequence
_DeadLetter = tuple[int, datetime, int]  # a dead letter: its shard, publish time and sequence


@of_one_statement
async def copy_dead_letters(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Reads messages from their dead letters and stores them, as many at a time as are read at once."""
    sources = zip(given["publish_times"], given["seqs"], strict=True)
    dead_letters = zip(
        given["dead_letter_shards"], given["dead_letter_publish_times"], given["dead_letter_seqs"], strict=True
    )
    left: dict[_DeadLetter, _Source] = dict(zip(dead_letters, sources, strict=True))
    while left:
        bodies = await read_dead_letter_bodies(connection, list(left))
        read = {
            left[dead_letter]: message
            for dead_letter in left
            if (message := bodies.get((dead_letter[0], dead_letter[2]))) is not None
        }
        if read:
            await connection.run(_put_back(given["shard_id"], read))
        # A message that is None did not fit.  One that is missing is gone: copy_dead_letters.sql would skip it.
        unread = {dead_letter for dead_letter, message in bodies.items() if message is None}
        left = {
            dead_letter: source
            for dead_letter, source in left.items()
            if (dead_letter[0], dead_letter[2]) in unread
        }
    return []


def _put_back(shard_id: int, messages: Mapping[_Source, NewMessage]) -> Bound:
    bodies = [_LENGTH(len(message.data)) + message.data for message in messages.values()]
    return _PUT_BACK_DEAD_LETTERS, {
        "shard_id": shard_id,
        "publish_times": [publish_time for publish_time, _ in messages],
        "seqs": [seq for _, seq in messages],
        "ordering_keys": [message.ordering_key or None for message in messages.values()],
        "attributes": [_encode_json(message.attributes).decode() for message in messages.values()],
        "data": array(OIDS["bytea"], bodies, len(bodies)),
    }
