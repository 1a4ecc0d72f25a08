"""The version of all that access depends on: whoever changes a credential or a policy raises it."""

from dataclasses import dataclass

from psycopg import sql
from sqlalchemy import text

from broker.store.driver.database import Connection, ResourceConnection
from broker.store.driver.notifications import ACCESS_CHANGED, resources_channel
from broker.store.driver.postgres_errors import translate_errors

_READ = sql.SQL("SELECT version, credentials FROM access_version")
_RAISE = text("UPDATE access_version SET version = version + 1")
_RAISE_BOTH = text("UPDATE access_version SET version = version + 1, credentials = version + 1")
_TELL = text("SELECT tell_brokers(:channel, :payload)")


@dataclass(frozen=True, slots=True)
class Versions:
    """`access`: of credentials and policies; `credentials`: what that was when a credential changed last."""

    access: int
    credentials: int


async def raise_access_version(connection: ResourceConnection, *, schema: str, credentials: bool = False) -> None:
    """A credential (`credentials`) or a policy changes in this transaction; all processes hear of it at its commit.

    Changes wait for each other here, until the transaction ends: so do this last.
    """
    await connection.execute(_RAISE_BOTH if credentials else _RAISE)
    await connection.execute(_TELL, {"channel": resources_channel(schema), "payload": ACCESS_CHANGED})


async def read_versions(connection: Connection) -> Versions:
    """As they are committed."""
    with translate_errors():
        row = await (await connection.execute(_READ)).fetchone()
    assert row is not None, "a migration has made the row"
    return Versions(*row)
