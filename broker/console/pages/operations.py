"""Long-running operations of a project, and one of them, which is the receipt of what was done."""

from broker.console.page import Page, PageRoute, View, list_page, resource_page
from broker.console.states import of_operation

NEWEST_FIRST = "createTime desc"


async def operations(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/operations", **view.page, orderBy=NEWEST_FIRST)
    rows = [(one, of_operation(one["metadata"]["state"])) for one in answer.get("operations", [])]
    return list_page(
        view,
        "Operations",
        collection="operations",
        command="broker op list",
        data={"rows": rows, "next": view.next_page(answer)},
    )


async def operation(view: View) -> Page:
    name = f"{view.project}/operations/{view.parts['operation']}"
    found = await view.get(name)
    return resource_page(
        view,
        "operation",
        command="broker op show",
        data={"operation": found, "state": of_operation(found["metadata"]["state"])},
    )


PAGES = [
    PageRoute("projects/{project}/operations", operations, ["Operations.ListOperations"]),
    PageRoute("projects/{project}/operations/{operation}", operation, ["Operations.GetOperation"]),
]
