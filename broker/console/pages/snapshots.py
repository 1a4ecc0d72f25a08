"""The snapshots of a project, and one snapshot."""

from broker.client.words import leaf
from broker.console.page import Command, Page, PageRoute, View

PAGE_SIZE = 50


async def snapshots(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/snapshots", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"))
    return Page(
        template="snapshots.html",
        title="Snapshots",
        kind="snapshots",
        name=project,
        section="snapshots",
        commands=[Command(f"broker snapshot list --project {leaf(project)}", f"{project}/snapshots")],
        data={"snapshots": answer.get("snapshots", []), "next": view.next_page(answer)},
    )


async def snapshot(view: View) -> Page:
    name = f"{view.project}/snapshots/{view.parts['snapshot']}"
    found = await view.get(name)
    return Page(
        template="snapshot.html",
        title=view.parts["snapshot"],
        kind="snapshot",
        name=name,
        section="snapshots",
        commands=[
            Command(f"broker snapshot show {view.parts['snapshot']} --project {view.parts['project']}", name)
        ],
        data={"snapshot": found},
    )


PAGES = [
    PageRoute("projects/{project}/snapshots", snapshots, ["Subscriber.ListSnapshots"]),
    PageRoute("projects/{project}/snapshots/{snapshot}", snapshot, ["Subscriber.GetSnapshot"]),
]
