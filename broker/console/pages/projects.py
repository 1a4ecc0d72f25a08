"""The projects that the viewer may see."""

from broker.console.page import Command, Page, PageRoute, View


async def projects(view: View) -> Page:
    found = await view.get("projects", **view.page)
    return Page(
        template="projects.html",
        title="Projects",
        commands=[Command("broker projects list", "projects")],
        data={"projects": found.get("projects", []), "next": view.next_page(found)},
    )


PAGES = [PageRoute("", projects, ["Projects.ListProjects"])]
