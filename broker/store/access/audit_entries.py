"""The rows of the audit log."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql
from sqlalchemy import ColumnElement, insert, select

from broker.domain.audit_entry import Audited, AuditEntry
from broker.domain.log_filter import Comparison
from broker.store.driver.database import Connection, ResourceConnection
from broker.store.schema.access_tables import audit_entries

MAX_ROWS = 500_000  # some 200 MB
_BATCH = 10_000  # rows deleted in one statement

_DELETE_OLD = sql.SQL(
    "DELETE FROM audit_entries WHERE number IN "
    "(SELECT number FROM audit_entries WHERE time < {before} ORDER BY number LIMIT {limit})"
)
_DELETE_BEYOND = sql.SQL(
    "DELETE FROM audit_entries WHERE number IN (SELECT number FROM audit_entries"
    " WHERE number <= (SELECT max(number) FROM audit_entries) - {rows} ORDER BY number LIMIT {limit})"
)
_WHAT = ("method", "resource", "code", "principal", "credential", "address", "permission")
_FIELDS: Mapping[str, Any] = {
    "timestamp": audit_entries.c.time,
    "protoPayload.methodName": audit_entries.c.method,
    "protoPayload.resourceName": audit_entries.c.resource,
    "protoPayload.status.code": audit_entries.c.code,
    "protoPayload.authenticationInfo.principalSubject": audit_entries.c.principal,
    "protoPayload.authenticationInfo.credentialId": audit_entries.c.credential,
    "protoPayload.requestMetadata.callerIp": audit_entries.c.address,
}


async def insert_audit_entries(connection: ResourceConnection, *, entries: Sequence[AuditEntry]) -> None:
    """In one statement."""
    rows = [
        {
            "project": entry.what.project,
            "time": entry.time,
            "times": entry.times,
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
    """Up to `size` of a project's that meet all comparisons, the newest first; `before`: with lower numbers."""
    query = select(audit_entries).where(audit_entries.c.project == project)
    for comparison in comparisons:
        query = query.where(_condition(comparison))
    if before is not None:
        query = query.where(audit_entries.c.number < before)
    rows: Any = await connection.execute(query.order_by(audit_entries.c.number.desc()).limit(size))
    return [
        AuditEntry(Audited(**{name: getattr(row, name) for name in _WHAT}), row.time, row.times, row.number)
        for row in rows
    ]


def _condition(comparison: Comparison) -> ColumnElement[bool]:
    if comparison.field == "protoPayload.authenticationInfo.principalEmail":
        column: Any = audit_entries.c.principal
        found: ColumnElement[bool] = column.like("%:" + _escaped(str(comparison.value)), escape="\\")
        return found if comparison.operator == "=" else ~found
    column = _FIELDS[comparison.field]
    match comparison.operator:
        case ":":
            condition: ColumnElement[bool] = column.contains(str(comparison.value), autoescape=True)
        case "=":
            condition = column == comparison.value
        case "!=":
            condition = column != comparison.value
        case operator:
            condition = column.op(operator, is_comparison=True)(comparison.value)
    return condition


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


async def delete_old_audit_entries(connection: Connection, *, now: datetime, days: int) -> int:
    """Those that are too old, and those that are too many.  Returns how many."""
    before = now - timedelta(days=days)
    deleted = 0
    for statement in (
        _DELETE_OLD.format(before=before, limit=_BATCH),
        _DELETE_BEYOND.format(rows=MAX_ROWS, limit=_BATCH),
    ):
        while (count := (await connection.execute(statement)).rowcount) > 0:
            deleted += count
            if count < _BATCH:
                break
    return deleted
