"""The schemas of a project, and one schema with its revisions."""

from broker.console.page import PAGE_SIZE, Page, PageRoute, View, list_page, resource_page


async def schemas(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/schemas", **view.page)
    return list_page(
        view,
        "Schemas",
        collection="schemas",
        command="broker schema list",
        data={"schemas": answer.get("schemas", []), "next": view.next_page(answer)},
    )


async def schema(view: View) -> Page:
    name = f"{view.project}/schemas/{view.parts['schema']}"
    found = await view.get(name, view="FULL")
    revisions = await view.block(f"{name}:listRevisions", pageSize=PAGE_SIZE)
    return resource_page(
        view, "schema", command="broker schema show", data={"schema": found, "revisions": revisions}
    )


PAGES = [
    PageRoute("projects/{project}/schemas", schemas, ["SchemaService.ListSchemas"]),
    PageRoute(
        "projects/{project}/schemas/{schema}",
        schema,
        ["SchemaService.GetSchema", "SchemaService.ListSchemaRevisions"],
    ),
]
