"""The snapshots of a project, and one snapshot."""

from broker.console.page import Page, PageRoute, View, list_page, resource_page


async def snapshots(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/snapshots", **view.page)
    return list_page(
        view,
        "Snapshots",
        collection="snapshots",
        command="broker snapshot list",
        data={"snapshots": answer.get("snapshots", []), "next": view.next_page(answer)},
    )


async def snapshot(view: View) -> Page:
    name = f"{view.project}/snapshots/{view.parts['snapshot']}"
    found = await view.get(name)
    return resource_page(view, "snapshot", command="broker snapshot show", data={"snapshot": found})


PAGES = [
    PageRoute("projects/{project}/snapshots", snapshots, ["Subscriber.ListSnapshots"]),
    PageRoute("projects/{project}/snapshots/{snapshot}", snapshot, ["Subscriber.GetSnapshot"]),
]
