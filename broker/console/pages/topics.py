"""The topics of a project, one topic, and its messages."""

import asyncio

from broker.console import formats
from broker.console.page import Command, Page, PageRoute, View, option
from broker.console.states import of_subscription

PAGE_SIZE = 50
NEWEST = 5
ATTACHED = 100  # subscriptions that a topic's page shows
SEARCHED = ("filter", "startTime", "endTime", "orderingKey")


async def topics(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/topics", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"))
    return Page(
        template="topics.html",
        title="Topics",
        kind="topics",
        name=project,
        section="topics",
        commands=[Command(f"broker topic list --project {formats.leaf(project)}", f"{project}/topics")],
        data={"topics": answer.get("topics", []), "next": view.next_page(answer)},
    )


async def topic(view: View) -> Page:
    name = f"{view.project}/topics/{view.parts['topic']}"
    found, newest, names, lag = await asyncio.gather(
        view.get(name),
        view.block(f"{name}/messages", pageSize=NEWEST),
        view.block(f"{name}/subscriptions", pageSize=ATTACHED),
        view.block(f"{view.project}/lag", pageSize=ATTACHED, filter=f"topic={view.parts['topic']}"),
    )
    lags = {one["subscription"]: one for one in lag.list("subscriptions")}
    attached = [
        (each, lags.get(each), of_subscription(lags[each]["deliveryState"]) if each in lags else None)
        for each in names.answer.get("subscriptions", [])
    ]
    return Page(
        template="topic.html",
        title=formats.leaf(name),
        kind="topic",
        name=name,
        section="topics",
        commands=[
            Command(f"broker topic show {view.parts['topic']} --project {view.parts['project']}", name),
            Command(
                f"broker topic browse {view.parts['topic']} --project {view.parts['project']}", f"{name}/messages"
            ),
        ],
        data={"topic": found, "newest": newest, "names": names, "attached": attached},
    )


async def messages(view: View) -> Page:
    name, asked = f"{view.project}/topics/{view.parts['topic']}", view.asked(*SEARCHED)
    answer = await view.block(
        f"{name}/messages", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"), **asked
    )
    return Page(
        template="topic_messages.html",
        title=f"Messages of {formats.leaf(name)}",
        kind="messages",
        name=name,
        section="topics",
        commands=[
            Command(
                f"broker topic browse {view.parts['topic']} --project {view.parts['project']}"
                + option({key: value for key, value in asked.items() if key == "filter"}),
                f"{name}/messages",
            )
        ],
        data={"messages": answer, "asked": asked, "next": view.next_page(answer.answer)},
    )


PAGES = [
    PageRoute("projects/{project}/topics", topics, ["Publisher.ListTopics"]),
    PageRoute(
        "projects/{project}/topics/{topic}",
        topic,
        ["Publisher.GetTopic", "ListTopicMessages", "Publisher.ListTopicSubscriptions", "ListLag"],
    ),
    PageRoute("projects/{project}/topics/{topic}/messages", messages, ["ListTopicMessages"]),
]
