"""How many connections all broker processes of a schema may open, beside what the database allows."""

from dataclasses import dataclass
from typing import Any, cast

from psycopg import sql

from broker.store.schema.schema_state import looking_session, saying_why

SPARE = 5  # a migration, a doctor, somebody's psql
_OF_OLDER_BROKERS = 18  # by default, of those that do not say
_SEEN_WITHIN = "10 seconds"

_LOOK = """
    SELECT count(*), coalesce(sum(coalesce(database_connections, %(older)s)), 0)::int
    FROM {processes} WHERE seen_at > clock_timestamp() - %(within)s::interval
"""
# A bound that is negative or zero is none.  A superuser may take the reserved connections too.
_BOUNDS = """
    SELECT bound, bound_at, allowed
    FROM (
        SELECT 'max_connections', setting::int, setting::int - (
            SELECT sum(setting::int) FROM pg_settings
            WHERE name IN ('superuser_reserved_connections', 'reserved_connections')
        )::int
        FROM pg_settings WHERE name = 'max_connections'
        UNION ALL
        SELECT 'CONNECTION LIMIT of the role ' || rolname, rolconnlimit, rolconnlimit
        FROM pg_roles WHERE rolname = current_user AND rolconnlimit > 0 AND NOT rolsuper
        UNION ALL
        SELECT 'CONNECTION LIMIT of the database ' || datname, datconnlimit, datconnlimit
        FROM pg_database
        WHERE datname = current_database() AND datconnlimit > 0
          AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
    ) AS bounds (bound, bound_at, allowed)
    ORDER BY allowed LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many `processes` run, and may open so many `connections`; so many are `allowed`, by `bound`, which is at
    `bound_at`.
    """

    processes: int
    connections: int
    bound: str
    bound_at: int
    allowed: int


def read_fleet(database_url: str, schema: str) -> Fleet:
    """Raises DatabaseUnreachable."""
    look = sql.SQL(_LOOK).format(processes=sql.Identifier(schema, "processes"))
    with saying_why("The database cannot be used"), looking_session(database_url) as connection:
        counted = connection.execute(look, {"older": _OF_OLDER_BROKERS, "within": _SEEN_WITHIN}).fetchone()
        bound = connection.execute(_BOUNDS).fetchone()
        return Fleet(*cast(tuple[Any, ...], counted), *cast(tuple[Any, ...], bound))
