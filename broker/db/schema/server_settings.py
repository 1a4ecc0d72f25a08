"""The settings of a PostgreSQL server that matter to a broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from broker.db.schema.schema_state import read_only_session, saying_why

_SETTINGS = [
    *("fsync", "full_page_writes", "autovacuum", "shared_buffers", "max_connections", "max_wal_size"),
    "data_directory",
]
_READ_STATE = """
SELECT (SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY (%s)),
       (SELECT setting FROM pg_settings WHERE name = 'server_version'),
       clock_timestamp(), pg_is_in_recovery(), pg_database_size(current_database()),
       (SELECT count(*) FROM pg_stat_activity),
       coalesce(host(inet_server_addr()) = host(inet_client_addr()), true)
"""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`values` as pg_settings has them, by name: sizes in pages of 8 kB, or MB; where its data is, if the role may
    read that.  `is_here`: it runs on this machine, as far as addresses tell.
    """

    values: Mapping[str, str]
    version: str
    now: datetime
    is_standby: bool
    database_bytes: int
    sessions: int
    is_here: bool


def read_server_settings(database_url: str) -> ServerSettings:
    """Raises DatabaseUnreachable."""
    with saying_why("The database cannot be used"), read_only_session(database_url) as connection:
        row = connection.execute(_READ_STATE, [_SETTINGS]).fetchone()
        return ServerSettings(*cast(tuple[Any, ...], row))
