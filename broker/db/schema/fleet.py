"""Checks how many connections all broker processes of a schema may open, against the limit of the database."""

from dataclasses import dataclass
from typing import cast

from psycopg import sql

from broker.db.schema.fitness import connection_bound
from broker.db.schema.schema_state import read_only_session, saying_why

SPARE = 5  # for a migration, `broker doctor`, or a psql session
BY_DEFAULT = 18  # connections that a process may open, by default
_SEEN_WITHIN = "10 seconds"

_READ_STATE = """
    SELECT count(*), coalesce(sum(database_connections), 0)::int
    FROM {processes} WHERE seen_at > clock_timestamp() - %(within)s::interval
"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The broker processes of a schema and their connections.

    `processes` run, and may open so many `connections`; so many are `allowed`, by `bound`, which is at `bound_at`.
    """

    processes: int
    connections: int
    bound: str
    bound_at: int
    allowed: int


def read_fleet(database_url: str, schema: str) -> Fleet:
    """Raises DatabaseUnreachable."""
    query = sql.SQL(_READ_STATE).format(processes=sql.Identifier(schema, "processes"))
    with saying_why("The database cannot be used"), read_only_session(database_url) as connection:
        counted = connection.execute(query, {"within": _SEEN_WITHIN}).fetchone()
        processes, connections = cast(tuple[int, int], counted)
        bound = connection_bound(connection)
        return Fleet(processes, connections, bound.name, bound.value, bound.allowed)
