"""Checks whether a broker can work with a database that it can connect to.

Settings that a session can override are set by each session (db/driver/connection_parameters.py).  Those that it
cannot, such as the encoding, are checked here before the broker serves or migrates, because they would make some
calls fail much later.
"""

from dataclasses import dataclass
from typing import Any, cast

import psycopg

from broker.db.driver.text import quoted

_Connection = psycopg.Connection[Any]

_SHORT_SECONDS = 60  # longer than any transaction of a claim or publish may take

_READ_STATE = """
    SELECT current_database(), current_user, current_setting('server_encoding'), coalesce(
        extract(epoch FROM nullif(current_setting('transaction_timeout', true), '')::interval), 0
    )::float8
"""
# Tables and sequences of the broker's schema on which this role lacks a right of their owner.  Those in `public`
# may belong to other programs.
_FOREIGN = """
    SELECT c.relname, pg_get_userbyid(c.relowner)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND n.nspname <> 'public' AND c.relkind IN ('r', 'p', 'S')
      AND NOT pg_has_role(c.relowner, 'USAGE')
    ORDER BY c.relname LIMIT 1
"""
# A bound that is negative or zero means no limit.  A superuser may also use the reserved connections.
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
class ConnectionBound:
    """The number of connections that are allowed at the most: by `name`, which is set to `value`."""

    name: str
    value: int
    allowed: int

    def shortfall(self, connections: int) -> str:
        """Why brokers that open so many connections cannot work ("": they can)."""
        if connections <= self.allowed:
            return ""
        least = self.value + connections - self.allowed
        return (
            f"the broker's processes open up to {connections} connections to the database, and {self.name} = "
            f"{self.value} allows {self.allowed}: raise it to at least {least}, or lower --pool-size or --workers"
        )


def connection_bound(connection: _Connection) -> ConnectionBound:
    """The smallest of the limits that hold for this session's role and database."""
    return ConnectionBound(*cast(tuple[Any, ...], connection.execute(_BOUNDS).fetchone()))


def why_unfit(connection: _Connection, schema: str) -> str:
    """Why no broker can work in this database, with the remedy ("": one can)."""
    database, role, encoding, timeout = cast(tuple[Any, ...], connection.execute(_READ_STATE).fetchone())
    if encoding != "UTF8":
        name = quoted(f"{database}_utf8")
        return (
            f"the database {database} has the encoding {encoding}, which cannot store every message: the broker "
            f"needs UTF8. Make another database, `CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C' TEMPLATE "
            "template0`, and restore a dump of this one into it if it has messages"
        )
    if 0 < timeout < _SHORT_SECONDS:
        return (
            f"transaction_timeout is {timeout:g} s for the role {role} in the database {database}, which ends "
            f"transactions of the broker: run `ALTER ROLE {quoted(role)} SET transaction_timeout = 0`"
        )
    if foreign := connection.execute(_FOREIGN, [schema]).fetchone():
        relation, owner = foreign
        return (
            f"{schema}.{relation} belongs to the role {owner}, and {role} is not a member of it: let a superuser "
            f"run `ALTER TABLE {schema}.{relation} OWNER TO {quoted(role)}`"
        )
    return ""
