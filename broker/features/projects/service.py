"""Lists the projects that a caller may see."""

from collections.abc import Sequence

from broker.access.policies.authorizer import Authorizer
from broker.access.principals.caller import Caller
from broker.db.driver.database import Database
from broker.features.projects import rows
from broker.model.page import Page, cut_page


class ProjectService:
    """The projects that callers may see.  `authorizer` is None if every caller may see everything."""

    def __init__(self, database: Database, authorizer: Authorizer | None) -> None:
        self._database = database
        self._authorizer = authorizer

    async def list_projects(self, caller: Caller, page: Page) -> tuple[Sequence[str], str]:
        """Returns a page of the names of the projects that the caller may see, and the token of the next page."""
        seen = None if self._authorizer is None else await self._authorizer.projects_of(caller)
        if seen is None:
            async with self._database.transaction() as connection:
                found = await rows.list_projects(connection, page=page)
        else:
            found = sorted(name for name in seen if name > page.after)[: page.size + 1]
        return cut_page(found, page.size, str)
