"""The database engine of a schema, and its differences.

Code whose behaviour depends on the engine asks this module; no other part of the store knows an engine by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import psycopg

from broker.db.citus.two_phases import SAY_TWO_PHASES

# A table that is dropped concurrently has no size.
_MEASURE_SCHEMA = b"""
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_catalog.pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
"""
_MEASURE_SCHEMA_ON_NODES = b"""
    SELECT coalesce(sum(CASE WHEN d.logicalrelid IS NULL THEN pg_total_relation_size(c.oid)
        ELSE citus_total_relation_size(c.oid, fail_on_error => false) END), 0)::bigint
    FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_dist_partition AS d ON d.logicalrelid = c.oid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """`whole_pipelines`: several statements up to a Sync are one transaction (docs/decisions/0040).
    `hot_settings`: what sessions for hot statements are told besides.  `detaches_online`: partitions leave their
    table without a lock that publishes wait for.  `size_of`: the function that says how large a table is.
    `measure_schema`: the statement that says how large all tables of the session's schema are.
    `changing_tables`: what a transaction that makes or drops partitions is told.  `is_distributed`: the hot tables
    lie on several nodes by their shard, and those of the catalog do not: no statement joins the two, locks rows of
    several shards, or is one snapshot over them.  `say_two_phases`: a statement, without which a transaction that
    writes to both would not be kept as a whole.
    """

    name: str
    whole_pipelines: bool = True
    hot_settings: Mapping[str, str] = field(default_factory=dict)
    detaches_online: bool = True
    size_of: str = "pg_total_relation_size"
    measure_schema: bytes = _MEASURE_SCHEMA
    changing_tables: Mapping[str, str] = field(default_factory=dict)
    is_distributed: bool = False
    say_two_phases: str = ""


POSTGRES = Engine("PostgreSQL")

# The extension is installed, but the broker's tables are plain tables of one server.
ON_COORDINATOR = Engine("Citus, not distributed", whole_pipelines=False)

# Citus routes a plan to the node of a shard by the shard's id, which a generic plan does not know.  Nor may Citus
# cache plans of statements about a single table: for those that it runs on the node itself, it caches one more each
# time, for ever (docs/decisions/0059).
#
# Partitions are changed through one connection to each node, because several sometimes wait for each other.
# Settings of such a transaction must reach the nodes.
CITUS = Engine(
    "Citus",
    whole_pipelines=False,
    hot_settings={"plan_cache_mode": "force_custom_plan"},
    detaches_online=False,
    size_of="citus_total_relation_size",
    measure_schema=_MEASURE_SCHEMA_ON_NODES,
    changing_tables={
        "citus.multi_shard_modify_mode": "sequential",
        "citus.propagate_set_commands": "local",
    },
    is_distributed=True,
    say_two_phases=SAY_TWO_PHASES,
)

_HAS_CITUS = b"SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')"
_KNOWS_NODES = b"SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
_IS_DISTRIBUTED = b"""
    SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('shards'))
"""


_KNOWN: WeakKeyDictionary[psycopg.AsyncConnection[Any], Engine] = WeakKeyDictionary()


async def find_engine(connection: psycopg.AsyncConnection[Any]) -> Engine:
    """Returns the engine of a session's schema, which is queried once for each session.  Raises psycopg.Error."""
    engine = _KNOWN.get(connection)
    if engine is None:
        engine = _KNOWN[connection] = await _detect(connection)
    return engine


async def _detect(connection: psycopg.AsyncConnection[Any]) -> Engine:
    if not await _says(connection, _HAS_CITUS):
        return POSTGRES
    is_distributed = await _says(connection, _KNOWS_NODES) and await _says(connection, _IS_DISTRIBUTED)
    return CITUS if is_distributed else ON_COORDINATOR


async def _says(connection: psycopg.AsyncConnection[Any], query: bytes) -> bool:
    return (await (await connection.execute(query)).fetchone()) == (True,)


# The places in Citus's code that report a lost connection to a node.
_SHOWN_IN = {"remote_commands.c", "remote_transaction.c", "placement_connection.c", "adaptive_executor.c"}
_LOST = ("08", "57P0", "XX000")  # beginnings of SQLSTATEs


def is_lost_node(error: BaseException) -> bool:
    """Whether a node behind the server went away, or a COMMIT there has no answer: its outcome is unknown then.

    Errors that a node has sent itself come by the same way, with SQLSTATEs of their own.
    """
    return (
        isinstance(error, psycopg.Error)
        and error.diag.source_file in _SHOWN_IN
        and (error.sqlstate or "").startswith(_LOST)
    )
