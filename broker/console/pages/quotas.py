"""The limits of a project, and how much of each is used."""

from broker.console.page import Page, PageRoute, View, list_page


async def quotas(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/quotas")
    return list_page(
        view, "Quotas", collection="quotas", command="broker quota show", data={"quotas": answer["quotas"]}
    )


PAGES = [PageRoute("projects/{project}/quotas", quotas, ["Quotas.GetQuotas"])]
