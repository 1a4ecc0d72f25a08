"""The overview of a project: what needs attention, the worst first."""

import asyncio

from broker.client.words import leaf
from broker.console import checks
from broker.console.api import Json
from broker.console.charts import HOUR
from broker.console.checks import AGE, Check, check
from broker.console.page import MOST_MARKS, Block, Command, Metric, Page, PageRoute, View, charts_of, no_block
from broker.console.states import of_operation
from broker.model.durations import parse_duration

MOST_CHECKED = 200  # resources of a kind; of subscriptions those furthest behind
MOST_OPERATIONS = 50
RECENT_OPERATIONS = 10
NEWEST_EVENTS = 5
METRICS = (
    Metric("pubsub_topic_published_messages_total", "Published a second", is_rate=True),
    Metric("pubsub_subscription_ack_messages_total", "Acknowledged a second", is_rate=True),
    Metric("pubsub_subscription_num_undelivered_messages", "Not acknowledged"),
)
_COUNTED = (  # metrics of which checks need the last hour
    "pubsub_topic_publish_requests_total",
    "pubsub_subscription_expired_ack_deadlines_total",
    "pubsub_subscription_sent_messages_total",
    "pubsub_subscription_dead_letter_messages_total",
)


async def overview(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/lag", pageSize=MOST_CHECKED)
    lag = Block(answer)
    (events, marks), (last_hour, charted), (topics, operations, schedules, quotas, broker) = await asyncio.gather(
        _events(view),
        _series(view),
        asyncio.gather(
            view.block(f"{project}/topics", pageSize=MOST_CHECKED),
            view.block(f"{project}/operations", orderBy="createTime desc", pageSize=MOST_OPERATIONS),
            view.block(f"{project}/schedules", pageSize=MOST_CHECKED),
            view.block(f"{project}/quotas"),
            view.block("broker/findings"),
        ),
    )
    refused, expired, sent, given_up = map(last_hour.of_metric, _COUNTED)
    codes = checks.refusals(refused)
    by_topic, late, dead_letters = await asyncio.gather(
        _of_each(view, _COUNTED[0], "topics", label=next(iter(codes))) if codes else no_block(),
        _of_each(view, _COUNTED[1], "subscriptions") if checks.are_late(expired, sent) else no_block(),
        _dead_letters(view, given_up),
    )
    made = [
        check("Broker and database", broker, checks.of_broker(broker)),
        check(
            "Publishes of the last hour",
            refused,
            checks.of_refused_publishes(project, refused, by_topic, quotas, view.now),
        ),
        check("Frozen topics", topics, checks.of_frozen_topics(topics)),
        check("Deliveries and endpoints", lag, checks.of_deliveries(lag)),
        check(
            "Dead letters of the last hour", dead_letters, checks.of_dead_letters(project, dead_letters, view.now)
        ),
        check("Retention of unacknowledged messages", lag, checks.of_retention(lag)),
        check("Ack deadlines", expired, checks.of_ack_deadlines(project, expired, sent, late, view.now)),
        check("Operations of the last day", operations, checks.of_operations(operations, view.now)),
        check("Schedules", schedules, checks.of_schedules(schedules, view.now)),
        check("Quotas", quotas, checks.of_quotas(project, quotas)),
    ]
    findings = sorted([finding for one in made for finding in one.findings], key=checks.rank)
    subscribed: list[Json] = answer["subscriptions"]
    ages: list[str] = [one[AGE] for one in subscribed if AGE in one]
    return Page(
        template="overview.html",
        title=leaf(project),
        name=project,
        section="overview",
        commands=[
            Command(f"broker lag --project {leaf(project)}", f"{project}/lag"),
            Command(f"broker dlq summary --project {leaf(project)}", f"{project}/deadLetters?groupBy=fingerprint"),
        ],
        data={
            "findings": findings,
            "verdict": _verdict(made),
            "checks": made,
            "total": answer["totalSize"],
            "is_cut": "nextPageToken" in answer,
            "waiting": sum(one.get("undeliveredMessages", 0) for one in subscribed),
            "outstanding": sum(one.get("outstandingMessages", 0) for one in subscribed),
            "oldest": max(ages, key=lambda age: parse_duration(age, AGE), default=None),
            "topics": topics,
            "charts": charts_of(METRICS, charted, marks),
            "range": view.range,
            "operations": operations,
            "events": events.list("events")[:NEWEST_EVENTS],
            "recent": [
                (one, of_operation(one["metadata"]["state"]))
                for one in operations.list("operations")[:RECENT_OPERATIONS]
            ],
        },
    )


def _verdict(made: list[Check]) -> str:
    """Return what the checks say together."""
    levels = [finding.state.level for one in made for finding in one.findings]
    critical, others = levels.count("critical"), len(levels) - levels.count("critical")
    found = [f"{critical} critical"] if critical else []
    found += [f"{others} {'warning' if others == 1 else 'warnings'}"] if others else []
    passed = sum(not (one.findings or one.refusal) for one in made)
    checked = f"{passed} of {len(made)} checks passed."
    if found:
        return f"{', '.join(found)}. {checked}"
    return f"Nothing needs attention. {checked}"


async def _events(view: View) -> tuple[Block, Block]:
    """Return the newest events, and those that have the newest marks: the same, if there are no older events."""
    events = await view.block(f"{view.project}/events", pageSize=MOST_MARKS)
    return events, await view.marks() if "nextPageToken" in events.answer else events


async def _series(view: View) -> tuple[Block, Block]:
    """Return what the checks need of the last hour, and what the charts show: one answer for the same time."""
    charted = [metric.name for metric in METRICS]
    if view.range == HOUR:
        both = await view.series([*_COUNTED, *charted], HOUR)
        return both, both
    return await asyncio.gather(view.series(_COUNTED, HOUR), view.series(charted, view.range))


async def _of_each(view: View, metric: str, collection: str, *, label: str = "") -> Block:
    """Return the time series of the last hour of each topic or subscription."""
    return await view.series([metric], HOUR, resource=f"{view.project}/{collection}/-", label=label)


async def _dead_letters(view: View, given_up: Block) -> Block:
    """Return the dead letters by their cause, if there are new ones: grouping reads many rows."""
    if not checks.total(given_up):
        return given_up
    return await view.block(
        f"{view.project}/deadLetters", groupBy="sourceSubscription,fingerprint", orderBy="newestTime desc"
    )


PAGES = [
    PageRoute(
        "projects/{project}",
        overview,
        [
            "ListLag",
            "Operations.ListOperations",
            "ListEvents",
            "Publisher.ListTopics",
            "ListSchedules",
            "Quotas.GetQuotas",
            "ListProjectDeadLetters",
            "Broker.ListFindings",
            "Monitoring.ListTimeSeries",
        ],
    ),
]
