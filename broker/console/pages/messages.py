"""One message: what became of it for each subscription."""

from broker.client.words import leaf
from broker.console.bodies import MOST_BYTES, body_of
from broker.console.page import Command, Page, PageRoute, View
from broker.console.states import of_message


async def message(view: View) -> Page:
    project, message_id = view.project, view.parts["message"]
    parent = f"{project}/topics/{view.parts['topic']}" if "topic" in view.parts else project
    name = f"{parent}/messages/{message_id}"
    found = await view.get(name, previewBytes=MOST_BYTES)
    reports = [(one, of_message(one["state"])) for one in found.get("subscriptions", [])]
    given = found.get("message", {})
    return Page(
        template="message.html",
        title=message_id,
        kind="message",
        name=name,
        section="topics",
        row_actions={"resend": [one["subscription"] for one, _ in reports]},
        commands=[Command(f"broker message show {message_id} --project {leaf(project)}", name)],
        data={
            "found": found,
            "message": given,
            "body": body_of(given.get("data", ""), view.query.get("body", ""), size=found.get("dataSize")),
            "reports": sorted(reports, key=lambda each: (each[1].rank, each[0]["subscription"])),
        },
    )


PAGES = [
    PageRoute("projects/{project}/messages/{message}", message, ["FindMessage"]),
    PageRoute("projects/{project}/topics/{topic}/messages/{message}", message, ["GetMessage"]),
]
