"""The dead letters of a subscription, grouped by their cause or one by one."""

import asyncio
from urllib.parse import urlencode

from broker.console.page import PREVIEW_BYTES, Command, Page, PageRoute, View, option

PAGE_SIZE = 50


async def dead_letters(view: View) -> Page:
    subscription = view.parts["subscription"]
    name = f"{view.project}/subscriptions/{subscription}"
    group_by, asked = view.query.get("groupBy") or "reason", view.asked("reason", "filter")
    groups, letters = await asyncio.gather(
        view.block(f"{name}/deadLetters", groupBy=group_by, **asked),
        view.block(
            f"{name}/deadLetters",
            pageSize=PAGE_SIZE,
            pageToken=view.query.get("pageToken"),
            previewBytes=PREVIEW_BYTES,
            **asked,
        ),
    )
    return Page(
        template="dead_letters.html",
        title=f"Dead letters of {subscription}",
        kind="dead letters",
        name=name,
        section="subscriptions",
        commands=[
            Command(
                f"broker dlq summary {subscription} --project {view.parts['project']}"
                + option({"by": group_by, **asked}),
                f"{name}/deadLetters?{urlencode({'groupBy': group_by})}",
            )
        ],
        row_actions={"redrive": [name], "discard": [name], "editDeadLetter": [name]},
        data={
            "groups": groups,
            "letters": letters,
            "group_by": group_by,
            "asked": asked,
            "next": view.next_page(letters.answer),
            "subscription": subscription,
        },
    )


PAGES = [
    PageRoute("projects/{project}/subscriptions/{subscription}/deadLetters", dead_letters, ["ListDeadLetters"])
]
