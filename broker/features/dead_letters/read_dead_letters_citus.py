"""Runs read_dead_letters.sql on distributed tables, where no statement joins shards of several nodes (L1)."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from broker.db.driver import statements
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.forms import of_one_statement
from broker.db.driver.hot_connection import HotConnection

_READ_DEAD_LETTERS = statements.hot("read_dead_letters")
_READ_DEAD_LETTERS_ALONE = statements.hot("read_dead_letters_alone")
_MATCH_DEAD_LETTERS = statements.hot("match_dead_letters")

_OF_MESSAGES = {"filter_path", "body_path"}  # what read_dead_letters.sql is asked besides


@of_one_statement
async def read_dead_letters(connection: HotConnection, given: dict[str, Any]) -> list[Any]:
    """Reads the records of dead letters, and then for each shard what its log still has of them."""
    [dead_letters] = await connection.run((_READ_DEAD_LETTERS_ALONE, given))
    messages = {(row.shard_id, row.seq): row for row in await _match(connection, given, dead_letters)}
    is_any = given["filter_path"] is None and given["body_path"] is None
    rows = []
    for dead_letter in dead_letters:
        message = messages.get((dead_letter.shard_id, dead_letter.seq))
        of_message: tuple[Any, ...] = (False, None, None, is_any)
        if message is not None:
            of_message = (True, message.ordering_key, message.expires_at, message.matches)
        rows.append(_READ_DEAD_LETTERS.make_row([*dead_letter, *of_message]))
    return sorted(rows, key=attrgetter("source_seq", "publish_time", "shard_id", "seq"))


async def _match(connection: HotConnection, asked: Mapping[str, Any], dead_letters: Sequence[Any]) -> list[Any]:
    if not dead_letters:
        return []
    where = {
        "shard_ids": [dead_letter.shard_id for dead_letter in dead_letters],
        "publish_times": [dead_letter.publish_time for dead_letter in dead_letters],
        "seqs": [dead_letter.seq for dead_letter in dead_letters],
        **{name: asked[name] for name in _OF_MESSAGES},
    }
    return await run_by_shard(connection, _MATCH_DEAD_LETTERS, where)
