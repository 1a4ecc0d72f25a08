"""The rows of the audit log."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql
from sqlalchemy import ColumnElement, insert, select

from broker.access.audit.audit_entry import Audited, AuditEntry
from broker.access.audit.log_filter import CODE, Comparison
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.text_conditions import text_condition
from broker.db.schema.tables import audit_entries

MAX_OTHERS = 500_000  # entries of calls that changed nothing, of all projects; some 200 MB
_BATCH = 10_000  # rows deleted in one statement

_DELETE_OLD = sql.SQL(
    "DELETE FROM audit_entries WHERE number IN "
    "(SELECT number FROM audit_entries WHERE time < {before} ORDER BY number LIMIT {limit})"
)
_COUNT = sql.SQL("SELECT project, count(*) FROM audit_entries GROUP BY project")
# Changes rank before other entries, and newer ones before older ones: a denial never displaces a change.
_DELETE_OF_PROJECTS = sql.SQL(
    "DELETE FROM audit_entries WHERE number IN (SELECT number FROM (SELECT number, row_number()"
    " OVER (PARTITION BY project ORDER BY is_change DESC, number DESC) AS place"
    " FROM audit_entries WHERE project = ANY({projects})) AS ranked WHERE place > {entries} LIMIT {limit})"
)
_DELETE_OTHERS = sql.SQL(
    "DELETE FROM audit_entries WHERE number IN (SELECT number FROM audit_entries"
    " WHERE NOT is_change ORDER BY number DESC OFFSET {others} LIMIT {limit})"
)
_WHAT = ("method", "resource", "code", "principal", "credential", "address", "permission")
_TEXTS: Mapping[str, Any] = {
    "protoPayload.methodName": audit_entries.c.method,
    "protoPayload.resourceName": audit_entries.c.resource,
    "protoPayload.authenticationInfo.principalSubject": audit_entries.c.principal,
    "protoPayload.authenticationInfo.credentialId": audit_entries.c.credential,
    "protoPayload.requestMetadata.callerIp": audit_entries.c.address,
}


async def insert_audit_entries(connection: ResourceConnection, *, entries: Sequence[AuditEntry]) -> None:
    """Inserts entries in one statement."""
    rows = [
        {
            "project": entry.what.project,
            "time": entry.time,
            "times": entry.times,
            "is_change": entry.is_change,
            **{name: getattr(entry.what, name) for name in _WHAT},
        }
        for entry in entries
    ]
    await connection.execute(insert(audit_entries).values(rows))


async def list_audit_entries(
    connection: ResourceConnection,
    *,
    project: str,
    comparisons: Sequence[Comparison],
    before: int | None,
    size: int,
) -> list[AuditEntry]:
    """Lists up to `size` entries of a project that meet all comparisons, the newest first.

    `before`: only entries with lower numbers.
    """
    query = select(audit_entries).where(audit_entries.c.project == project)
    for comparison in comparisons:
        query = query.where(_condition(comparison))
    if before is not None:
        query = query.where(audit_entries.c.number < before)
    rows: Any = await connection.execute(query.order_by(audit_entries.c.number.desc()).limit(size))
    return [
        AuditEntry(
            Audited(**{name: getattr(row, name) for name in _WHAT}), row.time, row.times, row.number, row.is_change
        )
        for row in rows
    ]


def _condition(comparison: Comparison) -> ColumnElement[bool]:
    field, operator, value = comparison.field, comparison.operator, comparison.value
    if isinstance(value, datetime):
        return audit_entries.c.time.op(operator, is_comparison=True)(value)
    if field == CODE:
        return audit_entries.c.code == value if operator == "=" else audit_entries.c.code != value
    if field == "protoPayload.authenticationInfo.principalEmail":
        return text_condition(audit_entries.c.principal, operator, value, before="%:")
    return text_condition(_TEXTS[field], operator, value)


async def delete_old_audit_entries(connection: Connection, *, now: datetime, days: int, entries: int) -> int:
    """Deletes entries older than `days`, and those beyond the newest `entries` of each project.

    Returns how many were deleted.
    """
    deleted = await _delete(connection, _DELETE_OLD.format(before=now - timedelta(days=days), limit=_BATCH))
    counts = dict(await (await connection.execute(_COUNT)).fetchall())
    crowded = [project for project, count in counts.items() if count > entries]
    if crowded:
        statement = _DELETE_OF_PROJECTS.format(projects=crowded, entries=entries, limit=_BATCH)
        deleted += await _delete(connection, statement)
    if sum(counts.values()) > MAX_OTHERS:
        deleted += await _delete(connection, _DELETE_OTHERS.format(others=MAX_OTHERS, limit=_BATCH))
    return deleted


async def _delete(connection: Connection, statement: sql.Composed) -> int:
    """Run a statement that deletes a batch until there is none.  Returns the number of rows."""
    deleted = 0
    while (count := (await connection.execute(statement)).rowcount) > 0:
        deleted += count
        if count < _BATCH:
            break
    return deleted
