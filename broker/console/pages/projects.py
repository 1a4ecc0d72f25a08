"""The projects that the viewer may see."""

from broker.console.page import Command, Page, PageRoute, View

PAGE_SIZE = 50


async def projects(view: View) -> Page:
    found = await view.get("projects", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"))
    return Page(
        template="projects.html",
        title="Projects",
        kind="console",
        commands=[Command("broker projects list", "projects")],
        data={"projects": found.get("projects", []), "next": view.next_page(found)},
    )


PAGES = [PageRoute("", projects, ["Projects.ListProjects"])]
