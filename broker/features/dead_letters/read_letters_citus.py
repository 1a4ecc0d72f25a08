"""Runs read_letters.sql on distributed tables, where no statement joins shards of several nodes (L1)."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from broker.db.driver import statements
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection

_READ_LETTERS = statements.hot("read_letters")
_READ_LETTERS_ALONE = statements.hot("read_letters_alone")
_MATCH_LETTERS = statements.hot("match_letters")

_OF_MESSAGES = {"filter_path", "body_path"}  # what read_letters.sql is asked besides


@of_one_statement
async def read_letters(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Reads which dead letters there are, and then, for each shard, what its log still has of them."""
    [letters] = await connection.run((_READ_LETTERS_ALONE, given))
    messages = {(row.shard_id, row.seq): row for row in await _match(connection, given, letters)}
    is_any = given["filter_path"] is None and given["body_path"] is None
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
