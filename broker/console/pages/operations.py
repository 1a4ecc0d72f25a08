"""Long-running operations of a project, and one of them, which is the receipt of what was done."""

from broker.client.words import leaf
from broker.console.page import Command, Page, PageRoute, View
from broker.console.states import of_operation

PAGE_SIZE = 50
NEWEST_FIRST = "createTime desc"


async def operations(view: View) -> Page:
    project = view.project
    answer = await view.get(
        f"{project}/operations", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"), orderBy=NEWEST_FIRST
    )
    rows = [(one, of_operation(one["metadata"]["state"])) for one in answer.get("operations", [])]
    return Page(
        template="operations.html",
        title="Operations",
        kind="operations",
        name=project,
        section="operations",
        commands=[Command(f"broker op list --project {leaf(project)}", f"{project}/operations")],
        data={"rows": rows, "next": view.next_page(answer)},
    )


async def operation(view: View) -> Page:
    name = f"{view.project}/operations/{view.parts['operation']}"
    found = await view.get(name)
    return Page(
        template="operation.html",
        title=view.parts["operation"],
        kind="operation",
        name=name,
        section="operations",
        commands=[Command(f"broker op show {view.parts['operation']} --project {view.parts['project']}", name)],
        data={"operation": found, "state": of_operation(found["metadata"]["state"])},
    )


PAGES = [
    PageRoute("projects/{project}/operations", operations, ["Operations.ListOperations"]),
    PageRoute("projects/{project}/operations/{operation}", operation, ["Operations.GetOperation"]),
]
