"""The pushes of one subscription, for its operators, and by a share link for the owner of its endpoint."""

import asyncio

from broker.client.words import leaf
from broker.console.page import PAGE_SIZE, Command, Page, PageRoute, View, no_block, option
from broker.console.states import of_push

MOST_FAILURES = 20
OUTCOMES = ("DELIVERED", "FAILED")


async def push_attempts(view: View) -> Page:
    """Return the page for viewers who may see the subscription."""
    return await make_page(view, until="")


async def make_page(view: View, *, until: str) -> Page:
    """Return the page.  `until`: when the share link that shows it expires; "": no link shows it."""
    project, subscription = view.parts["project"], view.parts["subscription"]
    name, asked = f"{view.project}/subscriptions/{subscription}", view.asked("outcome")
    status, attempts, failures, links = await asyncio.gather(
        view.get(f"{name}:pushStatus"),
        view.block(f"{name}:pushAttempts", **view.page, **asked),
        view.block(f"{name}:pushFailures", pageSize=MOST_FAILURES),
        no_block() if until else view.block(f"{name}/shareLinks", pageSize=PAGE_SIZE),
    )
    given = option({key: value.lower() for key, value in asked.items()})
    command = Command(
        f"broker push attempts {subscription} --project {project}{given}", f"{name}:pushAttempts", query=asked
    )
    return Page(
        template="push_attempts.html",
        title=f"Pushes of {leaf(name)}",
        kind="shared" if until else "page",
        name=name,
        section="subscriptions",
        commands=[] if until else [command],
        row_actions={
            "resend": [name],
            "delete": [link["name"] for link in links.list("shareLinks")],
        },
        data={
            "acting": name,  # on what its messages are resent
            "status": status,
            "attempts": attempts,
            "failures": failures,
            "rows": [(one, of_push(one["outcome"], one["status"])) for one in attempts.list("pushAttempts")],
            "links": links,
            "asked": asked,
            "outcomes": OUTCOMES,
            "until": until,
            "next": view.next_page(attempts.answer),
        },
    )


PAGES = [
    PageRoute(
        "projects/{project}/subscriptions/{subscription}/pushAttempts",
        push_attempts,
        ["GetPushStatus", "ListPushAttempts", "ListPushFailures", "ListShareLinks"],
    ),
]
