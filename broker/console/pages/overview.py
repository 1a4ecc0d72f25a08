"""The overview of a project: what needs attention, the worst first."""

import asyncio
from typing import NamedTuple

from broker.client.words import leaf
from broker.console.api import Json
from broker.console.page import Command, Metric, Page, PageRoute, View
from broker.console.prefix import PREFIX
from broker.console.states import State, of_operation, of_subscription
from broker.model.durations import parse_duration

MOST_SUBSCRIPTIONS = 200  # those furthest behind
MOST_OPERATIONS = 10
NEWEST_EVENTS = 5
AGE = "oldestUndeliveredMessageAge"
METRICS = (
    Metric("pubsub_topic_published_messages_total", "Published a second", is_rate=True),
    Metric("pubsub_subscription_ack_messages_total", "Acknowledged a second", is_rate=True),
    Metric("pubsub_subscription_num_undelivered_messages", "Not acknowledged"),
)
_NEEDS_ATTENTION = ("critical", "warning", "paused")


class Finding(NamedTuple):
    """A sentence about a resource that needs attention, with one link."""

    state: State
    name: str
    sentence: str
    link: str
    action: str


async def overview(view: View) -> Page:
    project = view.project
    lag = await view.get(f"{project}/lag", pageSize=MOST_SUBSCRIPTIONS)
    operations, events, topics, lines = await asyncio.gather(
        view.block(f"{project}/operations", orderBy="createTime desc", pageSize=MOST_OPERATIONS),
        view.block(f"{project}/events", pageSize=NEWEST_EVENTS),
        view.block(f"{project}/topics", pageSize=1),
        view.charts(*METRICS),
    )
    subscriptions: list[Json] = lag["subscriptions"]
    findings = sorted(
        [finding for one in subscriptions for finding in _findings(one)], key=lambda finding: finding.state.rank
    )
    ages: list[str] = [one[AGE] for one in subscriptions if AGE in one]
    return Page(
        template="overview.html",
        title=leaf(project),
        kind="project",
        name=project,
        section="overview",
        commands=[Command(f"broker lag --project {leaf(project)}", f"{project}/lag")],
        data={
            "findings": findings,
            "healthy": lag["totalSize"] - len({finding.name for finding in findings}),
            "total": lag["totalSize"],
            "is_cut": "nextPageToken" in lag,
            "waiting": sum(one.get("undeliveredMessages", 0) for one in subscriptions),
            "outstanding": sum(one.get("outstandingMessages", 0) for one in subscriptions),
            "oldest": max(ages, key=lambda age: parse_duration(age, AGE), default=None),
            "topics": topics,
            "charts": lines,
            "range": view.range,
            "operations": operations,
            "events": events,
            "recent": [(one, of_operation(one["metadata"]["state"])) for one in operations.list("operations")],
        },
    )


def _findings(one: Json) -> list[Finding]:
    """Return what the delivery state of a subscription, and its warnings, say."""
    name, state = one["subscription"], of_subscription(one["deliveryState"])
    link, found = f"{PREFIX}{name}", []
    if state.level in _NEEDS_ATTENTION:
        found.append(Finding(state, name, one["verdict"], *_action(one, link)))
    warning = State("Warning", "warning")
    found += [Finding(warning, name, sentence, link, "View subscription") for sentence in one.get("warnings", ())]
    return found


def _action(one: Json, link: str) -> tuple[str, str]:
    if "blockedKey" in one:
        project = one["subscription"].partition("/subscriptions/")[0]
        return f"{PREFIX}{project}/messages/{one['blockedKey']['messageId']}", "View message"
    if "endpointFailure" in one:
        return f"{link}#push", "View responses"
    return link, "View subscription"


PAGES = [
    PageRoute(
        "projects/{project}",
        overview,
        ["ListLag", "Operations.ListOperations", "ListEvents", "Publisher.ListTopics", "Monitoring.ListTimeSeries"],
    ),
]
