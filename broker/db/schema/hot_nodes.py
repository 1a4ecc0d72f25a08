"""Checks whether hot statements may go to nodes other than the coordinator: those of --hot-database-url.

They must belong to the same Citus cluster, and know the same schema.  Names and addresses do not show this, so the
check writes a row through the coordinator and reads it through each of the nodes.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from broker.db.citus.citus import is_distributed
from broker.db.driver.connection_parameters import connection_parameters, each_host
from broker.db.schema.citus_probe import is_undone_as_one
from broker.db.schema.pooler import PoolInBetween, refuse_pools
from broker.db.schema.schema_state import read_only_session, saying_why
from broker.observability.log import reason

_Connection = psycopg.Connection[Any]

_SHARDS = range(-16, 0)  # tried in turn, until one is on a node that answers; no such shards exist
_KEY = sql.SQL("WHERE shard_id = %s AND subscription_id = %s")


@dataclass(frozen=True, slots=True)
class HotNodes:
    """`problem`: why no hot statement may go there ("": they may).  `answer`: those that do; `away`: the others,
    each with the reason.
    """

    problem: str = ""
    answer: Sequence[str] = ()
    away: Sequence[str] = field(default=())


def inspect_nodes(database_url: str, hot_url: str, schema: str) -> HotNodes:
    """Raises DatabaseUnreachable for the coordinator, or a URL that makes no sense."""
    with saying_why("The database cannot be used"), read_only_session(database_url) as coordinator:
        if not is_distributed(coordinator, schema):
            return HotNodes(
                "--hot-database-url is for tables that lie on the nodes of a Citus cluster, and those of the "
                f"schema {schema} do not: leave it out, or run `broker migrate --distribute`"
            )
        with _row(coordinator, schema) as key:
            return _each(hot_url, schema, key)


def _each(hot_url: str, schema: str, key: Sequence[int]) -> HotNodes:
    answer, away = [], []
    for parameters in each_host(connection_parameters(hot_url, schema="pg_catalog")):
        name = (
            f"{parameters.get('host') or parameters.get('hostaddr') or 'localhost'}:{parameters.get('port', 5432)}"
        )
        try:
            with psycopg.connect(autocommit=True, **parameters) as node:
                refuse_pools(node, parameters)
                if not _sees(node, schema, key):
                    return HotNodes(
                        f"{name} of --hot-database-url is no node of this Citus cluster, or has no schema {schema}"
                    )
        except PoolInBetween as error:
            return HotNodes(f"{name} of --hot-database-url: {error}")
        except psycopg.OperationalError as error:
            away.append(f"{name}: {reason(error)}")
        else:
            answer.append(name)
    if answer and not asyncio.run(is_undone_as_one(hot_url, schema)):
        return HotNodes("what is sent to a node of --hot-database-url as one transaction is not undone as one")
    return HotNodes("", answer, away)


@contextmanager
def _row(coordinator: _Connection, schema: str) -> Iterator[tuple[int, int]]:
    """The key of a cursor of nobody, which is there within the block."""
    cursors = sql.Identifier(schema, "cursors")
    insert = sql.SQL(
        "INSERT INTO {} (shard_id, subscription_id, next_publish_time, next_seq, due_floor)"
        " VALUES (%s, %s, 'epoch', 1, 'epoch')"
    ).format(cursors)
    subscription_id = -random.randrange(1, 2**62)  # noqa: S311
    for shard_id in _SHARDS:
        try:
            coordinator.execute(insert, [shard_id, subscription_id])
        except psycopg.OperationalError:
            if shard_id == _SHARDS[-1]:
                raise
        else:
            break
    try:
        yield shard_id, subscription_id
    finally:
        delete = sql.SQL("DELETE FROM {} {}").format(cursors, _KEY)
        coordinator.execute(delete, [shard_id, subscription_id])


def _sees(node: _Connection, schema: str, key: Sequence[int]) -> bool:
    cursors = sql.Identifier(schema, "cursors")
    try:
        return node.execute(sql.SQL("SELECT FROM {} {}").format(cursors, _KEY), key).fetchone() is not None
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return False
