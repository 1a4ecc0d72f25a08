"""Searching a project: one box for ids of messages, names, labels and principals.

Ordering keys and bodies are not indexed.  They are searched for topic by topic, on the pages of their messages.
"""

import asyncio
import shlex

from broker.client.words import leaf
from broker.console.api import Json
from broker.console.page import Block, Command, Page, PageRoute, View
from broker.console.prefix import address_of

MOST_TOPICS = 20  # that are offered
_WITH_PAGES = (  # of single resources
    "topics",
    "subscriptions",
    "operations",
    "schedules",
    "snapshots",
    "schemas",
    "serviceAccounts",
    "roles",
)


async def search(view: View) -> Page:
    project, text = view.project, view.query.get("q", "").strip()
    found = topics = Block({})
    if text:
        found, topics = await asyncio.gather(
            view.block(f"{project}:search", q=text, **view.page),
            view.block(f"{project}/topics", pageSize=MOST_TOPICS),
        )
    results = [(one, _address(project, one)) for one in found.list("results")]
    ids = {one["name"] for one, _ in results if one["kind"] == "MESSAGE" and one["matchedValue"] == text}
    return Page(
        template="search.html",
        title=f"Search for {text}" if text else "Search",
        name=project,
        commands=[_command(project, text)] if text else (),
        data={
            "found": found,
            "results": results,
            "text": text,
            "topics": topics,
            "next": view.next_page(found.answer),
        },
        redirect=address_of(ids.pop()) if len(ids) == 1 and len(results) == 1 else "",
    )


def _command(project: str, text: str) -> Command:
    return Command(
        f"broker search {shlex.quote(text)} --project {leaf(project)}",
        f"{project}:search",
        query={"q": text},
    )


def _address(project: str, one: Json) -> str:
    """Return the page of a result; "" if it has none."""
    parts = one["name"].removeprefix(f"{project}/").split("/")
    has_page = len(parts) == 2 and parts[0] in _WITH_PAGES
    return address_of(one["name"]) if has_page or one["kind"] == "MESSAGE" else ""


PAGES = [PageRoute("projects/{project}/search", search, ["SearchProject", "Publisher.ListTopics"])]
