"""Runs statements about messages of several shards: one for all shards, or one for each on distributed tables.

Such a statement has array parameters, `shard_ids` among them, and looks up each element by itself.  Citus routes a
statement to a node only by a single shard id, so there it is sent for each shard with the elements of that shard.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import Statement

_LOOKED_UP = re.compile(rb"\bshard_id = [pw]\.shard_id\b")  # a lookup by an element of the arrays, by their alias


def by_shard(connection: HotConnection, statement: Statement, given: dict[str, Any]) -> list[Bound]:
    """Returns the statements to send; the result is all of their rows."""
    if not connection.is_distributed:
        return [(statement, given)]
    elements: defaultdict[int, list[int]] = defaultdict(list)
    for number, shard_id in enumerate(given["shard_ids"]):
        elements[shard_id].append(number)
    arrays = [name for name, type_ in statement.parameters if type_.endswith("[]")]
    return [
        (of_one_shard(statement), {**given, **_at(given, arrays, numbers), "shard_id": shard_id})
        for shard_id, numbers in sorted(elements.items())
    ]


async def run_by_shard(connection: HotConnection, statement: Statement, given: dict[str, Any]) -> list[Any]:
    """The rows of all of them, which are none if nothing is asked for."""
    bound = by_shard(connection, statement, given)
    return list(chain(*await connection.run(*bound))) if bound else []


def in_one_statement(connection: HotConnection, shard_ids: Iterable[int]) -> list[Sequence[int]]:
    """Divides shards, in the order given, into those of which one statement may write or lock rows: all or each."""
    if not connection.is_distributed:
        return [list(shard_ids)]
    return [[shard_id] for shard_id in shard_ids]


def one_by_one(connection: HotConnection, statement: Statement, shard_ids: Sequence[int]) -> list[Bound]:
    """A statement about some shards as a whole that locks their rows: of each in the order given."""
    return [(statement, {"shard_ids": together}) for together in in_one_statement(connection, shard_ids)]


async def read_sharing(connection: HotConnection, statement: Statement, given: dict[str, Any]) -> list[Any]:
    """The rows of all shards, of `max_bytes` together: each gives its part, or a message that is larger."""
    bound = by_shard(connection, statement, given)
    part = max(1, given["max_bytes"] // len(bound))
    return list(chain(*await connection.run(*[(each, asked | {"max_bytes": part}) for each, asked in bound])))


def _at(given: dict[str, Any], arrays: list[str], numbers: list[int]) -> dict[str, list[Any]]:
    return {name: [given[name][number] for number in numbers] for name in arrays}


@cache
def of_one_shard(statement: Statement) -> Statement:
    """The statement for elements of the shard `shard_id`.  Raises ValueError if it looks nothing up by elements."""
    number = len(statement.parameters) + 1
    text, found = _LOOKED_UP.subn(b"shard_id = $%d" % number, statement.text)
    if not found:
        raise ValueError(f"{statement.name.decode()} looks nothing up by its shard")
    parameters = (*statement.parameters, ("shard_id", "int8"))
    return Statement(statement.name + b"_of_one_shard", text, parameters, statement.columns)
