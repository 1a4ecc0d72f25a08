"""The subscriptions of a project, one subscription, and its backlog."""

import asyncio
from urllib.parse import urlencode

from broker.client.words import leaf
from broker.console.api import Json
from broker.console.charts import BUCKETS, timeline
from broker.console.checks import AGE
from broker.console.page import PREVIEW_BYTES, Command, Metric, Page, PageRoute, View, no_block, option
from broker.console.pages.delivering import StuckKeys, clients, endpoint, stuck_keys
from broker.console.states import of_message, of_subscription

_COLUMNS = (
    ("undeliveredMessages", "Not acknowledged"),
    ("outstandingMessages", "Outstanding"),
    (AGE, "Oldest"),
    ("incomingMessagesPerSecond", "In/s"),
    ("outgoingMessagesPerSecond", "Out/s"),
    ("deadLetters", "Dead letters"),
)
_OPTIONS = {"filter": "filter", "orderBy": "order-by"}  # of `broker lag`, by parameter
STATES = ("OUTSTANDING", "RETRYING", "EXHAUSTED", "BLOCKED", "WAITING")


async def subscriptions(view: View) -> Page:
    project, asked = view.project, view.asked("filter", "orderBy")
    found = await view.block(f"{project}/lag", **view.page, **asked)
    if found.error is not None and not asked:
        raise found.error
    answer = found.answer
    return Page(
        template="subscriptions.html",
        title="Subscriptions",
        name=project,
        section="subscriptions",
        commands=[
            Command(
                f"broker lag --project {leaf(project)}"
                + option({option_: asked[field] for field, option_ in _OPTIONS.items() if field in asked}),
                f"{project}/lag",
                query=asked,
            )
        ],
        data={
            "found": found,
            "asked": asked,
            "columns": [(field, word, _toggled(view, field)) for field, word in _COLUMNS],
            "lags": [(one, of_subscription(one["deliveryState"])) for one in found.list("subscriptions")],
            "total": answer.get("totalSize", 0),
            "sample_time": answer.get("sampleTime"),
            "next": view.next_page(answer),
        },
    )


async def subscription(view: View) -> Page:
    name = _name(view)
    found, lag, lines = await asyncio.gather(
        view.get(name),
        view.block(f"{view.project}/lag", fresh="true", filter=f"name={_id(view)}"),
        view.charts(
            Metric("pubsub_subscription_num_undelivered_messages", "Not acknowledged"),
            Metric("pubsub_subscription_ack_messages_total", "Acknowledged a second", is_rate=True),
            resource=name,
        ),
    )
    own = next(iter(lag.list("subscriptions")), {})
    groups, log, delivering, stuck = await asyncio.gather(
        no_block() if own.get("deadLetters") == 0 else view.block(f"{name}/deadLetters", groupBy="reason"),
        view.block(f"{found['topic']}:histogram", buckets=BUCKETS) if "/topics/" in found["topic"] else no_block(),
        endpoint(view, name) if "pushEndpoint" in found.get("pushConfig", {}) else clients(view, name),
        stuck_keys(view, name) if found.get("enableMessageOrdering") and AGE in own else no_block(),
    )
    pending_since = own.get("oldestUndeliveredPublishTime", "")
    return Page(
        template="subscription.html",
        title=leaf(name),
        name=name,
        section="subscriptions",
        commands=[
            Command(f"broker sub show {_id(view)} --project {view.parts['project']}", name),
            Command(f"broker lag --project {view.parts['project']}", f"{view.project}/lag"),
        ],
        row_actions={"release": [name], "deadLetter": [name]}
        if isinstance(stuck, StuckKeys) and stuck.keys
        else {},
        data={
            "subscription": found,
            "lag": own,
            "state": of_subscription(own["deliveryState"]) if own else None,
            "groups": groups,
            "log": log,
            "timeline": timeline(log.answer, pending_since=pending_since) if log.list("buckets") else None,
            "delivering": delivering,
            "stuck": stuck,
            "settings": _settings(found),
            "charts": lines,
            "range": view.range,
        },
    )


async def backlog(view: View) -> Page:
    name, asked = _name(view), view.asked("filter", "state", "orderingKey", "contains")
    answer = await view.block(
        f"{name}/messages",
        **view.page,
        previewBytes=PREVIEW_BYTES,
        **asked,
    )
    return Page(
        template="backlog.html",
        title=f"Backlog of {leaf(name)}",
        name=name,
        section="subscriptions",
        commands=[
            Command(
                f"broker peek {_id(view)} --project {view.parts['project']}"
                + option({key: value for key, value in asked.items() if key in ("filter", "state")}),
                f"{name}/messages",
                query=asked,
            )
        ],
        data={
            "messages": answer,
            "rows": [(one, of_message(one["state"])) for one in answer.list("messages")],
            "asked": asked,
            "states": STATES,
            "next": view.next_page(answer.answer),
        },
    )


def _toggled(view: View, field: str) -> tuple[str, str]:
    """Return the address of the list ordered by a field, the largest first, and how it is ordered by it now.

    A list that is ordered so already is then ordered the other way round.
    """
    given = view.query.get("orderBy", "").split()
    now = "" if given[:1] != [field] else "descending" if given[1:] == ["desc"] else "ascending"
    wanted = field if now == "descending" else f"{field} desc"
    return f"?{urlencode({**view.asked('filter'), 'orderBy': wanted})}", now


def _id(view: View) -> str:
    return view.parts["subscription"]


def _name(view: View) -> str:
    return f"{view.project}/subscriptions/{_id(view)}"


def _settings(found: Json) -> list[tuple[str, str]]:
    """Return the settings of a subscription as the API names them, in the order of its answer."""
    return [(path, value) for key, given in found.items() if key != "name" for path, value in _flat(key, given)]


def _flat(path: str, given: object) -> list[tuple[str, str]]:
    if isinstance(given, dict):
        return [each for key, value in given.items() for each in _flat(f"{path}.{key}", value)]
    if isinstance(given, bool):
        return [(path, "true" if given else "false")]
    return [(path, str(given))]


PAGES = [
    PageRoute("projects/{project}/subscriptions", subscriptions, ["ListLag"]),
    PageRoute(
        "projects/{project}/subscriptions/{subscription}",
        subscription,
        [
            "Subscriber.GetSubscription",
            "ListLag",
            "ListConsumers",
            "ListDeadLetters",
            "GetPushStatus",
            "ListPushAttempts",
            "ListPushFailures",
            "GetTopicHistogram",
            "ListSubscriptionMessages",
            "Monitoring.ListTimeSeries",
            "ListEvents",
        ],
    ),
    PageRoute("projects/{project}/subscriptions/{subscription}/messages", backlog, ["ListSubscriptionMessages"]),
]
