"""Whether Citus keeps tables of a schema on other servers, or would: a broker cannot serve them there yet.

A database that has the extension, and the broker's tables as plain ones, is served as any other.
"""

from typing import Any

import psycopg

_HAS_CITUS = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
# Also reference tables, and those of a schema that is distributed as a whole.  Of partitions their table tells.
_DISTRIBUTED = """
    SELECT c.relname
    FROM pg_catalog.pg_dist_partition AS p JOIN pg_class AS c ON c.oid = p.logicalrelid
    WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND NOT c.relispartition
    ORDER BY c.relname
"""
_NAMED = 3  # tables


def why_not_served_distributed(connection: psycopg.Connection[Any], schema: str) -> str:
    """Why no broker serves the schema as it is ("": nothing is distributed)."""
    if connection.execute(_HAS_CITUS).fetchone() != (True,):
        return ""
    names = [name for (name,) in connection.execute(_DISTRIBUTED, [schema]).fetchall()]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"tables of the schema {schema} are distributed over the nodes of Citus "
        f"({', '.join(names[:_NAMED])}{more}), where a broker's calls would fail, or lose messages: "
        "docs/operations.md has the way back, under Citus"
    )
