"""Installations: the broker's tables in a schema of their own, in a database that may be used for other purposes as
well.
"""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from broker.db.database_url import DEFAULT_SCHEMA
from broker.db.driver.text import quoted

_Connection = psycopg.Connection[Any]

VERSION_TABLE = "alembic_version"
_SETTING = "--database-schema (BROKER_DATABASE_SCHEMA)"

# Tables of the baseline; no other program has all of them.
_MARKS = ["cursors", "delivery_attempts", "message_batches", "shards", "subscriptions", "topics", VERSION_TABLE]

_INSTALLED = """
    SELECT n.nspname
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = ANY(%(marks)s) AND c.relkind = CASE c.relname WHEN 'message_batches' THEN 'p' ELSE 'r' END
    GROUP BY n.nspname
    HAVING count(*) = cardinality(%(marks)s)
    ORDER BY n.nspname
"""
_RELATIONS = """
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    ORDER BY c.relname
"""
_OWNER = """
    SELECT current_user, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE')
    FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'message_batches'
    WHERE n.nspname = %s
"""
_MAY_MAKE = """
    SELECT current_user, current_database(), to_regnamespace(%(schema)s) IS NOT NULL,
           CASE WHEN to_regnamespace(%(schema)s) IS NULL THEN has_database_privilege(current_database(), 'CREATE')
                ELSE has_schema_privilege(%(schema)s, 'USAGE') AND has_schema_privilege(%(schema)s, 'CREATE') END
"""


class SchemaUnusable(Exception):
    """The content of the database keeps the broker from it; the message says what it is and what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The schema that has the broker's tables, or is to have them, and the revision of those (None: it has none).

    `others` are the schemas of this database with a broker's tables that are not meant.
    """

    schema: str
    revision: str | None
    others: tuple[str, ...] = ()


def find_installation(connection: _Connection, wanted: str = "") -> Installation:
    """The one in the schema `wanted` ("": the default schema).

    Raises SchemaUnusable if what it finds is not the broker's, or may not be used by this role.
    """
    installed = [schema for (schema,) in connection.execute(_INSTALLED, {"marks": _MARKS}).fetchall()]
    schema = wanted or DEFAULT_SCHEMA
    others = tuple(other for other in installed if other != schema)
    if schema not in installed:
        _check_free(connection, schema)
        return Installation(schema, None, others)
    role, owner, may_use = _row(connection, _OWNER, [schema])
    if not may_use:
        raise SchemaUnusable(
            f"the tables in the schema {schema} belong to the role {owner}, and {role} is not a member of it: "
            f"connect as {owner}, or let a superuser run `GRANT {quoted(owner)} TO {quoted(role)}`"
        )
    check_may_make(connection, schema)  # partitions
    return Installation(schema, _revision(connection, schema), others)


def check_may_make(connection: _Connection, schema: str) -> None:
    """Raises SchemaUnusable unless this role may make the schema, or tables in it."""
    role, database, there, may = _row(connection, _MAY_MAKE, {"schema": schema})
    if may:
        return
    if there:
        raise SchemaUnusable(
            f"the role {role} may not make tables in the schema {schema}: permission denied. Let the schema's "
            f"owner run `GRANT USAGE, CREATE ON SCHEMA {schema} TO {quoted(role)}`, or choose another by "
            f"{_SETTING}"
        )
    raise SchemaUnusable(
        f"the role {role} may not make the schema {schema} in the database {database}: permission denied. Let the "
        f"database's owner run `{grant_create(database, role)}`, then try again"
    )


def grant_create(database: str, role: str) -> str:
    """The statement by which a database's owner lets the role make schemas: the broker's, and that of functions.

    CREATE SCHEMA … AUTHORIZATION would need an owner who is a member of the role.
    """
    return f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)}"


def _check_free(connection: _Connection, schema: str) -> None:
    """Raises SchemaUnusable if there is something in the schema; an empty version table is what a start left."""
    found = [name for (name,) in connection.execute(_RELATIONS, [schema]).fetchall()]
    if VERSION_TABLE in found and (revision := _revision(connection, schema)) is not None:
        raise SchemaUnusable(
            f"the schema {schema} has a version table that is not the broker's ({VERSION_TABLE}, at {revision}): "
            f"choose another schema by {_SETTING}"
        )
    if strangers := [name for name in found if name != VERSION_TABLE]:
        some = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        raise SchemaUnusable(
            f"the schema {schema} has tables that are not the broker's ({some}): choose another by {_SETTING}"
        )


def _revision(connection: _Connection, schema: str) -> str | None:
    query = sql.SQL("SELECT version_num FROM {}").format(sql.Identifier(schema, VERSION_TABLE))
    try:
        row = connection.execute(query).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return "a revision that this role may not read"
    except psycopg.errors.UndefinedColumn:
        return "nothing that Alembic knows"
    return row and str(row[0])


def _row(connection: _Connection, query: str, parameters: Any) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return row
