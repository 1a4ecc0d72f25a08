"""The projects that the viewer may see."""

import re

from broker.console.page import Command, Page, PageRoute, View

_NUMBER = re.compile(r"(\d+)")


async def projects(view: View) -> Page:
    found = await view.get("projects", **view.page)
    return Page(
        template="projects.html",
        title="Projects",
        commands=[Command("broker projects list", "projects")],
        data={
            "projects": sorted(found.get("projects", []), key=lambda one: _in_order(one["name"])),
            "next": view.next_page(found),
        },
    )


def _in_order(name: str) -> list[tuple[int, str]]:
    """Return the key by which a page of projects is sorted: team-2 is before team-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name) if part]


PAGES = [PageRoute("", projects, ["Projects.ListProjects"])]
