"""Who changed what in a project: the audit log."""

from broker.client.words import leaf
from broker.console.page import Command, Page, PageRoute, View

PAGE_SIZE = 50


async def activity(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/auditLogs", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"))
    return Page(
        template="activity.html",
        title="Activity",
        kind="activity",
        name=project,
        section="activity",
        commands=[Command(f"broker audit --project {leaf(project)}", f"{project}/auditLogs")],
        data={"entries": answer.get("entries", []), "next": view.next_page(answer)},
    )


PAGES = [PageRoute("projects/{project}/activity", activity, ["Logging.ListAuditLogs"])]
