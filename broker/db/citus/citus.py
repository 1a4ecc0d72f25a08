"""Checks which tables of a schema Citus has distributed over nodes, and whether a broker can use them.

All rows of a shard are on one node: TABLES are distributed by their shard_id and colocated.  Small tables (topics,
subscriptions and the like) stay on the coordinator (docs/decisions/0053).  A database that has the extension but
plain tables of the broker is used like any other.
"""

from collections.abc import Collection, Mapping
from typing import Any

import psycopg

from broker.db.citus.distributed_tables import COLUMN, TABLES, TWO_PHASES

_Connection = psycopg.Connection[Any]

_HAS_CITUS = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
# For each table that Citus knows: whether it is distributed by its shard_id and colocated with the first, or on the
# coordinator alone.  Includes reference tables, and those of a schema that is distributed as a whole.  Partitions
# are covered by their table.
_KNOWN = """
    SELECT c.relname, CASE WHEN c.relname = %(alone)s THEN p.partmethod = 'n' AND p.repmodel = 's' ELSE coalesce(
        p.partmethod = 'h' AND column_to_column_name(p.logicalrelid, p.partkey) = %(column)s
        AND p.colocationid = (
            SELECT colocationid FROM pg_catalog.pg_dist_partition JOIN pg_class ON oid = logicalrelid
            WHERE relname = %(first)s AND relnamespace = c.relnamespace
        ), false) END
    FROM pg_catalog.pg_dist_partition AS p JOIN pg_class AS c ON c.oid = p.logicalrelid
    WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND NOT c.relispartition
    ORDER BY c.relname
"""
_THERE = """
    SELECT relname FROM pg_class
    WHERE relname = ANY (%s) AND relnamespace = to_regnamespace(quote_ident(%s)) AND relkind IN ('r', 'p')
"""
_VERSION = "SELECT extversion FROM pg_extension WHERE extname = 'citus'"
_IS_WORKER = "SELECT groupid <> 0 FROM pg_catalog.pg_dist_local_group"
_NAMED = 3  # tables


def known_to_citus(connection: _Connection, schema: str) -> dict[str, bool]:
    """The tables of a schema that are not plain ones, and whether each lies as a broker needs it."""
    if connection.execute(_HAS_CITUS).fetchone() != (True,):
        return {}
    where = {"column": COLUMN, "first": TABLES[0], "alone": TWO_PHASES, "schema": schema}
    return dict(connection.execute(_KNOWN, where).fetchall())


def wrongly_known(known: Mapping[str, bool]) -> list[str]:
    """Returns the tables that Citus knows and that no broker can serve as they are."""
    return [name for name, is_right in known.items() if not is_right or name not in (*TABLES, TWO_PHASES)]


def undistributed(connection: _Connection, schema: str) -> list[str]:
    """Returns the TABLES that exist and are not distributed, in their order."""
    known = known_to_citus(connection, schema)
    there = {name for (name,) in connection.execute(_THERE, [list(TABLES), schema]).fetchall()}
    return [table for table in TABLES if table in there and not known.get(table)]


def citus_version(connection: _Connection) -> str:
    """ "": the database has no Citus."""
    row = connection.execute(_VERSION).fetchone()
    return "" if row is None else str(row[0])


def is_worker(connection: _Connection) -> bool:
    """Whether a session is on a node of a cluster that has no plain tables of the broker."""
    if connection.execute(_HAS_CITUS).fetchone() != (True,):
        return False
    return bool(connection.execute(_IS_WORKER).fetchone() == (True,))


def is_distributed(connection: _Connection, schema: str) -> bool:
    """Whether a schema's shards lie on nodes."""
    return TABLES[0] in known_to_citus(connection, schema)


def why_not_served_distributed(connection: _Connection, schema: str) -> str:
    """Why no broker serves the schema as it is ("": nothing is distributed, or all that must be and no more)."""
    known = known_to_citus(connection, schema)
    if not known:
        return ""
    if wrong := wrongly_known(known):
        return (
            f"tables of the schema {schema} are known to Citus in a way that no broker can serve "
            f"({_named(wrong)}): `broker docs operations citus` has the way back"
        )
    if missing := undistributed(connection, schema):
        return (
            f"tables of the schema {schema} are distributed over the nodes of Citus, and others that must lie with "
            f"them are not ({_named(missing)}): stop all brokers and run `broker migrate --distribute`"
        )
    if TWO_PHASES not in known:
        return (
            f"the schema {schema} has no table {TWO_PHASES}, by which Citus keeps all of a transaction or nothing: "
            "run `broker migrate --distribute` again, also beside brokers"
        )
    return ""


def _named(names: Collection[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(list(names)[:_NAMED])}{more}"
