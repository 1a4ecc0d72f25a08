"""The topics of a project, one topic, and its messages."""

import asyncio
import re
from collections.abc import Mapping

from broker.client.words import leaf
from broker.console.api import Json
from broker.console.charts import BUCKETS, timeline
from broker.console.page import PREVIEW_BYTES, Command, Metric, Page, PageRoute, View, option
from broker.console.states import State, of_subscription

NEWEST = 5
ATTACHED = 100  # subscriptions that a topic's page shows
TIMES = ("startTime", "endTime")
SEARCHED = ("contains", "orderingKey", "attribute", "value", "filter", *TIMES)
_OPTIONS = {  # of `broker topic browse`, by parameter
    "filter": "filter",
    "orderingKey": "ordering-key",
    "contains": "contains",
    "startTime": "since",
    "endTime": "until",
}
_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?")


async def topics(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/topics", **view.page, view="STATS")
    found = [(each, each["stats"], _worst(each["stats"])) for each in answer.get("topics", [])]
    return Page(
        template="topics.html",
        title="Topics",
        name=project,
        section="topics",
        commands=[Command(f"broker topic list --stats --project {leaf(project)}", f"{project}/topics?view=STATS")],
        data={"topics": found, "next": view.next_page(answer)},
    )


def _worst(stats: Json) -> State | None:
    """Return the state of the worst subscription of a topic, if it has one that the viewer may see."""
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
        view.charts(
            Metric("pubsub_topic_published_messages_total", "Published a second", is_rate=True), resource=name
        ),
    )
    lags = {one["subscription"]: one for one in lag.list("subscriptions")}
    attached = [
        (each, lags.get(each), of_subscription(lags[each]["deliveryState"]) if each in lags else None)
        for each in names.answer.get("subscriptions", [])
    ]
    return Page(
        template="topic.html",
        title=leaf(name),
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
    given = _given(asked)
    answer = await view.block(
        f"{name}/messages",
        **view.page,
        previewBytes=PREVIEW_BYTES,
        **given,
    )
    options = {option_: given[field] for field, option_ in _OPTIONS.items() if field in given}
    return Page(
        template="topic_messages.html",
        title=f"Messages of {leaf(name)}",
        name=name,
        section="topics",
        commands=[
            Command(
                f"broker topic browse {view.parts['topic']} --project {view.parts['project']}" + option(options),
                f"{name}/messages",
                query=given,
            )
        ],
        data={
            "messages": answer,
            "progress": answer.answer.get("progress"),
            "asked": asked,
            "local": {field: asked.get(field, "").removesuffix("Z") for field in TIMES},
            "next": view.next_page(answer.answer),
        },
    )


def _given(asked: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the call for what was searched for.

    Forms send times without a zone, which are in UTC, and an attribute apart from the filter.
    """
    given = {field: text for field, text in asked.items() if field not in ("attribute", "value")}
    for field in TIMES:
        if _WITHOUT_ZONE.fullmatch(given.get(field, "")):
            given[field] += "Z" if given[field].count(":") == 2 else ":00Z"
    if asked.get("attribute"):
        named = _quoted(asked["attribute"])
        wanted = f"attributes.{named} = {_quoted(asked['value'])}" if "value" in asked else f"attributes:{named}"
        given["filter"] = f"({given['filter']}) AND {wanted}" if "filter" in given else wanted
    return given


def _quoted(text: str) -> str:
    """Return a string of the filter language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
