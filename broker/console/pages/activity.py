"""What happened in a project: its last events and marks, and the audit log of who changed what."""

import asyncio

from broker.client.words import leaf
from broker.console.page import Command, Page, PageRoute, View

NEWEST_EVENTS = 20


async def activity(view: View) -> Page:
    project = view.project
    events, log = await asyncio.gather(
        view.block(f"{project}/events", pageSize=NEWEST_EVENTS),
        view.block(f"{project}/auditLogs", **view.page),
    )
    if log.error is not None and (events.error is not None or view.query.get("pageToken")):
        raise log.error
    return Page(
        template="activity.html",
        title="Activity",
        name=project,
        section="activity",
        commands=[
            Command(f"broker events list --max {NEWEST_EVENTS} --project {leaf(project)}", f"{project}/events"),
            Command(f"broker audit --project {leaf(project)}", f"{project}/auditLogs"),
        ],
        data={"events": events, "log": log, "next": view.next_page(log.answer)},
    )


PAGES = [PageRoute("projects/{project}/activity", activity, ["ListEvents", "Logging.ListAuditLogs"])]
