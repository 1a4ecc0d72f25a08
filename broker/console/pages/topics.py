"""The topics of a project, one topic, and its messages."""

import asyncio

from broker.client.words import leaf
from broker.console.api import Json
from broker.console.charts import BUCKETS, timeline
from broker.console.page import PREVIEW_BYTES, Command, Metric, Page, PageRoute, View, option
from broker.console.states import State, of_subscription

PAGE_SIZE = 50
NEWEST = 5
ATTACHED = 100  # subscriptions that a topic's page shows
SEARCHED = ("filter", "contains", "startTime", "endTime", "orderingKey")


async def topics(view: View) -> Page:
    project = view.project
    answer = await view.get(
        f"{project}/topics", pageSize=PAGE_SIZE, pageToken=view.query.get("pageToken"), view="STATS"
    )
    found = [(each, each["stats"], _worst(each["stats"])) for each in answer.get("topics", [])]
    return Page(
        template="topics.html",
        title="Topics",
        kind="topics",
        name=project,
        section="topics",
        commands=[Command(f"broker topic list --stats --project {leaf(project)}", f"{project}/topics?view=STATS")],
        data={"topics": found, "next": view.next_page(answer)},
    )


def _worst(stats: Json) -> State | None:
    """Returns the state of the worst subscription of a topic, if it has one that the viewer may see."""
    worst = stats.get("worstSubscription")
    return None if worst is None else of_subscription(worst["deliveryState"])


async def topic(view: View) -> Page:
    name = f"{view.project}/topics/{view.parts['topic']}"
    found, newest, names, lag, log, lines = await asyncio.gather(
        view.get(name),
        view.block(f"{name}/messages", pageSize=NEWEST, previewBytes=PREVIEW_BYTES),
        view.block(f"{name}/subscriptions", pageSize=ATTACHED),
        view.block(f"{view.project}/lag", pageSize=ATTACHED, filter=f"topic={view.parts['topic']}"),
        view.block(f"{name}:histogram", buckets=BUCKETS),
        view.charts(Metric("pubsub_topic_published_messages_total", "Published a second", name, is_rate=True)),
    )
    lags = {one["subscription"]: one for one in lag.list("subscriptions")}
    attached = [
        (each, lags.get(each), of_subscription(lags[each]["deliveryState"]) if each in lags else None)
        for each in names.answer.get("subscriptions", [])
    ]
    return Page(
        template="topic.html",
        title=leaf(name),
        kind="topic",
        name=name,
        section="topics",
        commands=[
            Command(f"broker topic show {view.parts['topic']} --project {view.parts['project']}", name),
            Command(
                f"broker topic browse {view.parts['topic']} --project {view.parts['project']}", f"{name}/messages"
            ),
        ],
        data={
            "topic": found,
            "newest": newest,
            "names": names,
            "attached": attached,
            "log": log,
            "timeline": None if log.error is not None or not log.list("buckets") else timeline(log.answer),
            "charts": lines,
            "range": view.range,
        },
    )


async def messages(view: View) -> Page:
    name, asked = f"{view.project}/topics/{view.parts['topic']}", view.asked(*SEARCHED)
    answer = await view.block(
        f"{name}/messages",
        pageSize=PAGE_SIZE,
        pageToken=view.query.get("pageToken"),
        previewBytes=PREVIEW_BYTES,
        **asked,
    )
    return Page(
        template="topic_messages.html",
        title=f"Messages of {leaf(name)}",
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
        [
            "Publisher.GetTopic",
            "ListTopicMessages",
            "Publisher.ListTopicSubscriptions",
            "ListLag",
            "GetTopicHistogram",
            "Monitoring.ListTimeSeries",
            "ListEvents",
        ],
    ),
    PageRoute("projects/{project}/topics/{topic}/messages", messages, ["ListTopicMessages"]),
]
