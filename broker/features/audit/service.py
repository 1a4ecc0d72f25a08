"""Reads the audit log."""

from collections.abc import Sequence

from broker.access.audit.audit_entry import AuditEntry
from broker.access.audit.audit_rows import list_audit_entries
from broker.access.audit.log_filter import parse_log_filter
from broker.db.driver.database import Database
from broker.model.names import check_project
from broker.model.page import check_page_size, cut_page, parse_page_token


class AuditLogService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_entries(
        self, project: str, *, filter_text: str, page_size: int, page_token: str
    ) -> tuple[Sequence[AuditEntry], str]:
        """Returns a page of a project's entries, the newest first, and the token of the next page.  Raises
        InvalidArgument.
        """
        check_project(project)
        size, comparisons = check_page_size(page_size), parse_log_filter(filter_text)
        (before,) = parse_page_token(page_token, int) if page_token else (None,)
        async with self._database.transaction() as connection:
            found = await list_audit_entries(
                connection, project=project, comparisons=comparisons, before=before, size=size + 1
            )
        return cut_page(found, size, lambda entry: entry.number)
