"""Distributes the hot tables of a schema over the nodes of a Citus cluster by their shard_id.

This is one transaction, recorded in Citus's catalog: a schema is distributed either completely or not at all.
"""

from typing import Any

import psycopg
from psycopg import sql

from broker.db.citus.citus import citus_version, known_to_citus, undistributed, wrongly_known
from broker.db.citus.distributed_tables import COLUMN, TABLES, TWO_PHASES
from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.migration_lock import lock_migrations
from broker.db.schema.migration_waits import APPLICATION_NAME, Patience, migrate_patiently
from broker.db.schema.running_brokers import be_alone

_Connection = psycopg.Connection[Any]

_NODES = """
    SELECT count(*) FROM pg_catalog.pg_dist_node WHERE isactive AND shouldhaveshards AND noderole = 'primary'
"""
_KNOWS_ITSELF = "SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_node WHERE groupid = 0)"
_IS_VIEW = "SELECT relkind = 'v' FROM pg_class WHERE oid = %s::regclass"


class CannotDistribute(Exception):
    """The message says why, and what to do."""


def distribute(database_url: str, *, schema: str, patience: Patience) -> int:
    """Distribute those of a schema's tables that are not yet.  Returns how many those were.

    Raises CannotDistribute, BrokersAtWork, LockHeld, psycopg.Error; nothing has changed then.
    """
    parameters = connection_parameters(
        database_url,
        schema=schema,
        application_name=APPLICATION_NAME,
        settings={"lock_timeout": f"{patience.lock_seconds * 1000:.0f}ms"},
    )
    distributed = 0

    def attempt() -> None:
        nonlocal distributed
        with psycopg.connect(**parameters) as connection, connection.transaction():
            distributed = _distribute_all(connection, schema)

    migrate_patiently(attempt, database_url, patience)
    return distributed


def _distribute_all(connection: _Connection, schema: str) -> int:
    if why := _why_not(connection, schema):
        raise CannotDistribute(why)
    lock_migrations(connection, schema)
    missing = undistributed(connection, schema)
    if TABLES[0] in missing or any(_has_rows(connection, table) for table in missing):
        be_alone(connection, schema)
    # One connection to each node, so that it sees the earlier changes of the transaction.
    connection.execute("SET LOCAL citus.multi_shard_modify_mode = 'sequential'")
    _keep_what_is_known(connection)
    for table in missing:
        _distribute(connection, table)
    return len(missing) + _have_two_phases(connection, schema)


def _why_not(connection: _Connection, schema: str) -> str:
    """Why nothing can be distributed from here ("": it can)."""
    if not citus_version(connection):
        return (
            "this database has no extension citus, and only a Citus cluster has nodes to distribute over: "
            "CREATE EXTENSION citus on each of its nodes first"
        )
    if connection.execute(_NODES).fetchone() == (0,):
        return "the Citus cluster has no node that takes shards: SELECT citus_add_node(HOST, PORT) first"
    if connection.execute(_KNOWS_ITSELF).fetchone() != (True,):
        return (
            "the Citus cluster does not know where its coordinator is: "
            "SELECT citus_set_coordinator_host(HOST, PORT) first"
        )
    if wrong := wrongly_known(known_to_citus(connection, schema)):
        return (
            f"Citus has tables of the schema in another way ({', '.join(wrong)}): "
            "`broker docs operations citus` has the way back"
        )
    return ""


def _has_rows(connection: _Connection, table: str) -> bool:
    query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table))
    return bool(connection.execute(query).fetchone() == (True,))


def _keep_what_is_known(connection: _Connection) -> None:
    """Tables take the place of the views by which the catalog reads what is going to lie on nodes."""
    for view, key in (("known_shards", "shard_id"), ("held_claims", "subscription_id")):
        if connection.execute(_IS_VIEW, [view]).fetchone() != (True,):
            continue
        name, copy = sql.Identifier(view), sql.Identifier(f"{view}_copy")
        connection.execute(sql.SQL("CREATE TABLE {} AS SELECT * FROM {}").format(copy, name))
        connection.execute(sql.SQL("DROP VIEW {}").format(name))
        connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(copy, name))
        connection.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(name, sql.Identifier(key)))
    connection.execute("CREATE INDEX IF NOT EXISTS known_shards_topic_id_idx ON known_shards (topic_id)")


def _distribute(connection: _Connection, table: str) -> None:
    """Distributes a table.

    Its rows, if there are any, move to the nodes; the coordinator's copy of them is removed.
    """
    colocated_with = "default" if table == TABLES[0] else TABLES[0]
    connection.execute(
        "SELECT create_distributed_table(%s::regclass, %s, colocate_with => %s)", [table, COLUMN, colocated_with]
    )
    connection.execute("SELECT truncate_local_data_after_distributing_table(%s::regclass)", [table])


def _have_two_phases(connection: _Connection, schema: str) -> int:
    """The table by which a transaction says that it is one (db/citus/two_phases.py).  Returns 1 if new."""
    if TWO_PHASES in known_to_citus(connection, schema):
        return 0
    connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (said boolean)").format(sql.Identifier(TWO_PHASES)))
    connection.execute("SELECT citus_add_local_table_to_metadata(%s::regclass)", [TWO_PHASES])
    return 1
