"""Dead letters where shards lie on nodes: no statement joins them with what is in shards of other nodes (L1)."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

import msgspec

from broker.db.driver import statements
from broker.db.driver.binary import OIDS, array
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.model.message import NewMessage

_READ_LETTERS = statements.hot("read_letters")
_READ_LETTERS_ALONE = statements.hot("read_letters_alone")
_MATCH_LETTERS = statements.hot("match_letters")
_PUT_BACK_LETTERS = statements.hot("put_back_letters")

_OF_MESSAGES = {"filter_path", "body_path"}  # what read_letters.sql is asked besides
_LENGTH = Struct("!i").pack
_encode_json = msgspec.json.Encoder().encode


async def read_on_nodes(connection: HotConnection, asked: Mapping[str, Any]) -> list[Any]:
    """As read_letters.sql: first which letters there are, then of each shard what its log has of them.

    A letter without a message is one that the log has no more.
    """
    [letters] = await connection.run((_READ_LETTERS_ALONE, dict(asked)))
    messages = {(row.shard_id, row.seq): row for row in await _match(connection, asked, letters)}
    is_any = asked["filter_path"] is None and asked["body_path"] is None
    rows = []
    for letter in letters:
        message = messages.get((letter.shard_id, letter.seq))
        of_message: tuple[Any, ...] = (False, None, None, is_any)
        if message is not None:
            of_message = (True, message.ordering_key, message.expires_at, message.matches)
        rows.append(_READ_LETTERS.make_row([*letter, *of_message]))
    return sorted(rows, key=attrgetter("source_seq", "publish_time", "shard_id", "seq"))


async def _match(connection: HotConnection, asked: Mapping[str, Any], letters: Sequence[Any]) -> list[Any]:
    if not letters:
        return []
    where = {
        "shard_ids": [letter.shard_id for letter in letters],
        "publish_times": [letter.publish_time for letter in letters],
        "seqs": [letter.seq for letter in letters],
        **{name: asked[name] for name in _OF_MESSAGES},
    }
    return await run_by_shard(connection, _MATCH_LETTERS, where)


def put_back_read(where: Mapping[str, Any], messages: Sequence[NewMessage]) -> Bound:
    """As copy_letters.sql, of what has been read; `where`: the shard, and the place of each message in it."""
    bodies = [_LENGTH(len(message.data)) + message.data for message in messages]
    return _PUT_BACK_LETTERS, {
        **where,
        "ordering_keys": [message.ordering_key or None for message in messages],
        "attributes": [_encode_json(message.attributes).decode() for message in messages],
        "data": array(OIDS["bytea"], bodies, len(bodies)),
    }
