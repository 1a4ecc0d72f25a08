"""The limits of a project, and how much of each is used."""

from broker.client.words import leaf
from broker.console.page import Command, Page, PageRoute, View


async def quotas(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/quotas")
    return Page(
        template="quotas.html",
        title="Quotas",
        kind="quotas",
        name=project,
        section="quotas",
        commands=[Command(f"broker quota show --project {leaf(project)}", f"{project}/quotas")],
        data={"quotas": answer["quotas"]},
    )


PAGES = [PageRoute("projects/{project}/quotas", quotas, ["Quotas.GetQuotas"])]
