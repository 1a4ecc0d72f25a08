"""Reading the audit log."""

from collections.abc import Sequence

from broker.domain.audit_entry import AuditEntry
from broker.domain.log_filter import parse_log_filter
from broker.domain.names import check_project
from broker.domain.page import check_page_size, cut_page, parse_page_token
from broker.store.access.audit_entries import list_audit_entries
from broker.store.driver.database import Database


class AuditLogService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_entries(
        self, project: str, *, filter_text: str, page_size: int, page_token: str
    ) -> tuple[Sequence[AuditEntry], str]:
        """A page of a project's entries, the newest first, and the token of the next.  Raises InvalidArgument."""
        check_project(project)
        size, comparisons = check_page_size(page_size), parse_log_filter(filter_text)
        (before,) = parse_page_token(page_token, int) if page_token else (None,)
        async with self._database.transaction() as connection:
            found = await list_audit_entries(
                connection, project=project, comparisons=comparisons, before=before, size=size + 1
            )
        return cut_page(found, size, lambda entry: entry.number)
