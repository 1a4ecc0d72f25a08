"""The dead letters of a project, grouped by their cause."""

import asyncio

from broker.console.page import PREVIEW_BYTES, Command, Page, PageRoute, View, option

NEWEST = 20


async def project_dead_letters(view: View) -> Page:
    project, asked = view.project, view.asked("filter")
    group_by = view.query.get("groupBy") or "sourceSubscription,fingerprint"
    path = f"{project}/deadLetters"
    groups, letters = await asyncio.gather(
        view.block(
            path,
            groupBy=group_by,
            orderBy=view.query.get("orderBy") or "count desc",
            **view.page,
            **asked,
        ),
        view.block(path, pageSize=NEWEST, previewBytes=PREVIEW_BYTES, **asked),
    )
    return Page(
        template="project_dead_letters.html",
        title="Dead letters",
        name=project,
        section="deadLetters",
        commands=[
            Command(
                f"broker dlq summary --project {view.parts['project']}" + option({"by": group_by, **asked}),
                path,
                query={"groupBy": group_by, **asked},
            )
        ],
        data={
            "groups": groups,
            "letters": letters,
            "traits": [trait for trait in group_by.split(",") if trait != "fingerprint"],
            "shows_cause": "fingerprint" in group_by.split(","),
            "group_by": group_by,
            "asked": asked,
            "next": view.next_page(groups.answer),
        },
    )


PAGES = [PageRoute("projects/{project}/deadLetters", project_dead_letters, ["ListProjectDeadLetters"])]
