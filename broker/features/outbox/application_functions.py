"""The SQL functions that applications call in their own transactions, and the grants to call them (J7).

They are in a schema of their own and only delegate: each calls the function of an installation that does the work,
as its owner, with the installation's schema as its search path.  So migrations update their behaviour, and a role
that may call them can read none of the broker's tables.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.installations import grant_create
from broker.db.schema.migration_waits import APPLICATION_NAME
from broker.observability.log import reason

DEFAULT_FUNCTIONS = "pubsub"
_LONGEST_NAME = 63  # bytes, in PostgreSQL

# Name, parameters, and what it calls.
_FUNCTIONS = (
    (
        "publish",
        "topic text, data bytea DEFAULT '', attributes jsonb DEFAULT NULL, ordering_key text DEFAULT NULL",
        "write_outbox_message($1, $2, $3, $4)",
    ),
    ("acknowledge", "subscription text, ack_ids text[]", "write_outbox_acks($1, $2, false)"),
    ("nack", "subscription text, ack_ids text[]", "write_outbox_acks($1, $2, true)"),
)
_SIGNATURES = ("publish(text, bytea, jsonb, text)", "acknowledge(text, text[])", "nack(text, text[])")
_MAKE = """
    CREATE OR REPLACE FUNCTION {name} ({parameters}) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp
    AS {body}
"""

# Of the functions of that name, where they are and what they are bound to.  One that belongs to neither the broker
# nor whoever asks is an application's, whatever it looks like: it must not be in the way of taking its grant back.
_BOUND = """
    SELECT n.nspname, bound.to_schema
    FROM pg_proc AS p
    JOIN pg_namespace AS n ON n.oid = p.pronamespace
    CROSS JOIN unnest(p.proconfig) AS setting
    CROSS JOIN substring(setting FROM 'search_path=(.*), pg_temp$') AS bound (to_schema)
    WHERE p.proname = 'publish' AND p.prosrc LIKE '%%write_outbox_message(%%' AND setting LIKE 'search_path=%%'
      AND p.proowner IN (
          SELECT oid FROM pg_roles WHERE rolname = current_user
          UNION ALL
          SELECT c.relowner FROM pg_class AS c JOIN pg_namespace AS i ON i.oid = c.relnamespace
          WHERE c.relname = 'application_grants' AND quote_ident(i.nspname) = bound.to_schema
      )
    ORDER BY n.nspname
"""
_OTHERS = """
    SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(%s) AND proname <> ALL(%s)
    UNION ALL
    SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)
    ORDER BY 1
"""
_MAY_MAKE = "SELECT has_database_privilege(current_database(), 'CREATE'), current_user, current_database()"


class CannotGrant(Exception):
    """The state of the database prevents a grant; the message says why."""


@dataclass(frozen=True, slots=True)
class Grant:
    """`role` may publish and acknowledge in `project` ("projects/p"), by functions in these schemas (none: it has
    not the right to call them any more).
    """

    role: str
    project: str
    functions: tuple[str, ...]


def make_role(superuser_url: str, *, role: str, functions: str = DEFAULT_FUNCTIONS) -> bool:
    """Make a role that may log in, with a schema of its name for its tables.  False: there is one of that name.

    `functions`: the schema that the broker's are in.  Raises CannotGrant.
    """
    _check_role(role)
    if role == functions:
        raise CannotGrant(f"the functions' schema is called {functions}, and the role of that name would own it")
    with session_in(superuser_url, "pg_catalog") as connection:
        if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone() is not None:
            return False
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        connection.execute(
            sql.SQL("CREATE SCHEMA IF NOT EXISTS {0} AUTHORIZATION {0}").format(sql.Identifier(role))
        )
        return True


def _check_role(role: str) -> None:
    """PostgreSQL cuts a longer name, and the grant would be another role's.  Raises CannotGrant."""
    if len(role.encode()) > _LONGEST_NAME:
        raise CannotGrant(
            f"the role's name is too long: {len(role.encode())} bytes, the maximum is {_LONGEST_NAME}"
        )


def grant(database_url: str, *, schema: str, role: str, project: str, functions: str = DEFAULT_FUNCTIONS) -> None:
    """Let a role publish and acknowledge in a project, by functions in the schema `functions`, which are made.

    `schema` is the installation's.  In one transaction.  Raises CannotGrant.
    """
    _check_role(role)
    with session_in(database_url, schema) as connection:
        if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
            raise CannotGrant(f"there is no role {role} in this PostgreSQL: CREATE ROLE makes one")
        _make_functions(connection, schema, functions)
        if not _may_call(connection, role, functions):  # another of that name, or one whose rights were taken
            connection.execute("DELETE FROM application_grants WHERE role = %s", [role])
        _give(connection, "GRANT USAGE ON SCHEMA {} TO {}", sql.Identifier(functions), role)
        for signature in _SIGNATURES:
            _give(connection, "GRANT EXECUTE ON FUNCTION {} TO {}", _signature(functions, signature), role)
        connection.execute(
            "INSERT INTO application_grants VALUES (%s, %s, clock_timestamp()) ON CONFLICT DO NOTHING",
            [role, project],
        )


def revoke(database_url: str, *, schema: str, role: str, project: str) -> bool:
    """Take it back.  With its last project a role loses the right to call the functions.  False: it had no grant.

    What it has staged and committed is published all the same.  Raises CannotGrant.
    """
    with session_in(database_url, schema) as connection:
        cursor = connection.execute(
            "DELETE FROM application_grants WHERE role = %s AND project = %s", [role, project]
        )
        if not cursor.rowcount:
            return False
        left = connection.execute("SELECT FROM application_grants WHERE role = %s", [role]).fetchone()
        known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone()
        if left is None and known is not None:
            for functions in _bound_to(connection, schema):
                for signature in _SIGNATURES:
                    _give(
                        connection, "REVOKE EXECUTE ON FUNCTION {} FROM {}", _signature(functions, signature), role
                    )
                _give(connection, "REVOKE USAGE ON SCHEMA {} FROM {}", sql.Identifier(functions), role)
        return True


def list_grants(database_url: str, *, schema: str) -> list[Grant]:
    """Lists all grants of an installation, by role and project.  Raises CannotGrant."""
    with session_in(database_url, schema) as connection:
        bound = _bound_to(connection, schema)
        rows = connection.execute("SELECT role, project FROM application_grants ORDER BY role, project").fetchall()
        callable_by = {
            role: tuple(functions for functions in bound if _may_call(connection, role, functions))
            for role in {role for role, _ in rows}
        }
        return [Grant(role, project, callable_by[role]) for role, project in rows]


@contextmanager
def session_in(database_url: str, schema: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction in an installation, committed at the end of the block.

    Raises CannotGrant for what the database has against what is done in it.
    """
    parameters = connection_parameters(database_url, schema=schema, application_name=APPLICATION_NAME)
    try:
        with psycopg.connect(**parameters) as connection:
            yield connection
    except psycopg.Error as error:
        raise CannotGrant(f"the database refuses that: {reason(error)}") from error


def _make_functions(connection: psycopg.Connection[Any], schema: str, functions: str) -> None:
    bound = {where: _unquoted(to) for where, to in connection.execute(_BOUND).fetchall()}
    if bound.get(functions, schema) != schema:
        raise CannotGrant(
            f"the functions in the schema {functions} are those of the installation in {bound[functions]}: name "
            "another schema by --functions"
        )
    if functions not in bound:
        _make_schema(connection, functions)
    for name, parameters, call in _FUNCTIONS:
        connection.execute(
            sql.SQL(_MAKE).format(
                name=sql.Identifier(functions, name),
                parameters=sql.SQL(parameters),
                schema=sql.Identifier(schema),
                body=sql.Literal(f"BEGIN RETURN {call}; END"),
            )
        )
    for signature in _SIGNATURES:
        connection.execute(
            sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC").format(_signature(functions, signature))
        )


def _make_schema(connection: psycopg.Connection[Any], functions: str) -> None:
    there = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [functions]).fetchone()
    if there is None:
        may, role, database = connection.execute(_MAY_MAKE).fetchone() or (False, "", "")
        if not may:
            raise CannotGrant(
                f"the role {role} may not make the schema {functions} in the database {database}: let the "
                f"database's owner run `{grant_create(database, role)}`, then try again"
            )
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(functions)))
        return
    others = connection.execute(_OTHERS, [functions, [], functions]).fetchall()
    if others:
        some = ", ".join(name for (name,) in others[:3])
        raise CannotGrant(
            f"the schema {functions} has what is not the broker's ({some}): name another by --functions"
        )


def _bound_to(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    return [where for where, to in connection.execute(_BOUND).fetchall() if _unquoted(to) == schema]


def _may_call(connection: psycopg.Connection[Any], role: str, functions: str) -> bool:
    row = connection.execute(
        "SELECT has_function_privilege(oid, %s::regprocedure, 'EXECUTE') FROM pg_roles WHERE rolname = %s",
        [f"{_quoted(functions)}.{_SIGNATURES[0]}", role],
    ).fetchone()
    return row == (True,)


def _give(connection: psycopg.Connection[Any], statement: str, what: sql.Composable, role: str) -> None:
    connection.execute(sql.SQL(statement).format(what, sql.Identifier(role)))


def _signature(functions: str, signature: str) -> sql.Composed:
    return sql.SQL(".").join((sql.Identifier(functions), sql.SQL(signature)))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unquoted(name: str | None) -> str:
    """Returns the name in a setting of a function, without the quotes that it has only if it needs them."""
    name = name or ""
    return name[1:-1].replace('""', '"') if re.fullmatch('".*"', name) else name
