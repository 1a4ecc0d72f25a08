"""The schemas of a project, and one schema with its revisions."""

from broker.client.words import leaf
from broker.console.page import Command, Page, PageRoute, View

PAGE_SIZE = 50


async def schemas(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/schemas", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"))
    return Page(
        template="schemas.html",
        title="Schemas",
        kind="schemas",
        name=project,
        section="schemas",
        commands=[Command(f"broker schema list --project {leaf(project)}", f"{project}/schemas")],
        data={"schemas": answer.get("schemas", []), "next": view.next_page(answer)},
    )


async def schema(view: View) -> Page:
    name = f"{view.project}/schemas/{view.parts['schema']}"
    found = await view.get(name, view="FULL")
    revisions = await view.block(f"{name}:listRevisions", pageSize=PAGE_SIZE)
    return Page(
        template="schema.html",
        title=view.parts["schema"],
        kind="schema",
        name=name,
        section="schemas",
        commands=[Command(f"broker schema show {view.parts['schema']} --project {view.parts['project']}", name)],
        data={"schema": found, "revisions": revisions},
    )


PAGES = [
    PageRoute("projects/{project}/schemas", schemas, ["SchemaService.ListSchemas"]),
    PageRoute(
        "projects/{project}/schemas/{schema}",
        schema,
        ["SchemaService.GetSchema", "SchemaService.ListSchemaRevisions"],
    ),
]
