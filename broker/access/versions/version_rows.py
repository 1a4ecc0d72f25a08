"""The rows of the version of credentials and policies, and of its changes.

Every change of a credential or a policy increments the version.
"""

from collections.abc import Collection

from psycopg import sql
from sqlalchemy import text

from broker.access.principals.policy import ABOVE_PROJECTS
from broker.access.versions.access_changes import AccessChanges, Versions
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.notifications import access_channel
from broker.db.driver.postgres_errors import translate_errors

KEPT_VERSIONS = 1_000  # a process that is further behind takes it that everything has changed
_PRUNE_EVERY = 100  # versions

_READ = sql.SQL(
    "SELECT v.version, v.credentials, c.version, c.project, c.credentials FROM access_version v"
    " LEFT JOIN access_changes c ON c.version > {since} AND c.version <= v.version"
)
_RAISE = text(
    "WITH raised AS (UPDATE access_version SET version = version + 1,"
    " credentials = CASE WHEN :credentials THEN version + 1 ELSE credentials END RETURNING version)"
    " INSERT INTO access_changes (version, project, credentials)"
    " SELECT raised.version, project, :credentials FROM raised, unnest(CAST(:projects AS text[])) AS project"
    " RETURNING version"
)
_PRUNE = text("DELETE FROM access_changes WHERE version <= :version")
_NOTIFY = text("SELECT notify_brokers(:channel, '')")


async def raise_access_version(
    connection: ResourceConnection, *, schema: str, projects: Collection[str], credentials: bool = False
) -> None:
    """Raises the version, since a policy, a role or (`credentials`) a credential of the projects changes.

    ABOVE_PROJECTS among them means all projects.  All processes are notified at the commit.  Changes wait for each
    other here until the transaction ends, so call this last.
    """
    values = {"projects": sorted(set(projects)), "credentials": credentials}
    version = (await connection.execute(_RAISE, values)).scalars().first()
    if version is not None and version % _PRUNE_EVERY == 0:
        await connection.execute(_PRUNE, {"version": version - KEPT_VERSIONS})
    await connection.execute(_NOTIFY, {"channel": access_channel(schema)})


async def read_changes(connection: Connection, *, since: Versions) -> AccessChanges:
    """Returns the changes committed since those versions."""
    with translate_errors():
        rows = await (await connection.execute(_READ.format(since=since.access))).fetchall()
    assert rows, "a migration has made the row"
    versions = Versions(rows[0][0], rows[0][1])
    changes = [row[2:] for row in rows if row[2] is not None]
    # A version without rows was raised by a broker that does not say what it changed, or is no longer kept.
    is_known = len({version for version, _, _ in changes}) == versions.access - since.access
    if is_known and all(project != ABOVE_PROJECTS for _, project, _ in changes):
        projects = frozenset(project for _, project, _ in changes)
        credentials = frozenset(project for _, project, of_credentials in changes if of_credentials)
        return AccessChanges(versions, projects, credentials)
    same = versions.credentials == since.credentials and versions.access >= since.access
    return AccessChanges(versions, None, frozenset() if same else None)
