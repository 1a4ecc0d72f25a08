"""A standby for reads: its connections, and its position in the primary's WAL."""

from broker.db.driver.connection_parameters import connection_parameters
from broker.db.driver.database import HOT, Hot
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_pool import HotPool
from broker.db.driver.patient_connection import PatientConnection
from broker.db.driver.statements import Statement
from broker.db.replica_lag import WalPoint

# These statements are not in files, because they are PostgreSQL's own and read no table.
_WRITTEN = Statement(
    b"written",
    b"SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::int8, system_identifier, false "
    b"FROM pg_control_system()",
)
_REPLAYED = Statement(
    b"replayed",
    b"SELECT coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0)::int8, system_identifier, "
    b"pg_is_in_recovery() FROM pg_control_system()",
)


async def written(connection: HotConnection) -> WalPoint:
    """Returns the position of a primary: all writes that it has confirmed are before it."""
    [[row]] = await connection.run((_WRITTEN, {}))
    return WalPoint(*row)


async def replayed(connection: HotConnection) -> WalPoint:
    """Returns the position of a standby, up to which a later statement sees all writes.

    If the server is a primary, the position says that it follows no other server.
    """
    [[row]] = await connection.run((_REPLAYED, {}))
    return WalPoint(*row)


class Replica:
    """The connections to a replica, at most `size`, which only read.  Close it after use."""

    def __init__(self, url: str, *, schema: str, size: int) -> None:
        """Raises ValueError for a URL that cannot be used."""
        settings = HOT | {"default_transaction_read_only": "on"}
        self._parameters = connection_parameters(url, schema=schema, settings=settings, target="any")
        self._pool = HotPool(self._connect, size=size, went=self._went_away)
        self.why_away = ""

    async def close(self) -> None:
        await self._pool.close()

    def hot(self) -> Hot:
        """A connection for statements that read.  Raises a BrokerError for whatever goes wrong in the block."""
        return Hot(self._pool, None, lambda _: None)  # the caller reads the primary instead, and reports it

    async def _connect(self) -> HotConnection:
        return HotConnection(await PatientConnection.connect(autocommit=True, **self._parameters))

    def _went_away(self, why: str) -> None:
        self.why_away = why
