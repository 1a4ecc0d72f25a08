"""Reports the position of a standby relative to its primary once, for operators."""

from dataclasses import dataclass

import psycopg

from broker.db.driver.connection_parameters import connection_parameters
from broker.db.schema.schema_state import DatabaseUnreachable, read_only_session, saying_why

_SYSTEM = "(SELECT system_identifier FROM pg_control_system())"
_OF_PRIMARY = f"SELECT pg_current_wal_flush_lsn()::text, {_SYSTEM}"
_OF_REPLICA = f"""
SELECT {_SYSTEM}, pg_is_in_recovery(),
       greatest(pg_wal_lsn_diff(%s::pg_lsn, pg_last_wal_replay_lsn()), 0)::int8,
       coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float8
"""  # noqa: S608


class ReplicaUnreachable(DatabaseUnreachable):
    """The primary answers and the replica does not, or cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """`is_copy`: it is of the same cluster; `seconds`: since the primary's newest commit that it has."""

    is_copy: bool
    follows: bool
    bytes_behind: int
    seconds: float


def inspect_replica(database_url: str, replica_url: str) -> ReplicaState:
    """Raises ReplicaUnreachable, and DatabaseUnreachable for the primary."""
    with saying_why("The database cannot be used"), read_only_session(database_url) as primary:
        [(lsn, system)] = primary.execute(_OF_PRIMARY).fetchall()
    try:
        with saying_why("The replica cannot be used"):
            parameters = connection_parameters(replica_url, schema="pg_catalog", target="any")
            with psycopg.connect(autocommit=True, **parameters) as replica:
                [(its, follows, behind, seconds)] = replica.execute(_OF_REPLICA, [lsn]).fetchall()
    except DatabaseUnreachable as error:
        raise ReplicaUnreachable(str(error)) from error
    return ReplicaState(its == system, follows, behind or 0, seconds)
