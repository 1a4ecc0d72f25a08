"""The messages of a topic, or those that a subscription receives, as they are published.

A page has the newest messages, and can be read without scripts.  A script follows Server-Sent Events, which the
console makes of those of the API: texts are prepared here, so that the script inserts them as text.
"""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlencode

from broker.client.words import leaf
from broker.console.api import ApiError, Json
from broker.console.bodies import attribute_line, escaped, preview
from broker.console.event_stream import ALIVE, event
from broker.console.page import PAGE_SIZE, PREVIEW_BYTES, Command, Page, PageRoute, StreamRoute, View, option
from broker.console.prefix import address_of
from broker.console.states import TAIL_STATES
from broker.model.timestamps import format_timestamp

MOST_ROWS = 200  # that the script keeps on the page
MOST_AT_ONCE = 100  # messages of one reading of the log that are shown; the others are counted
OVERLAP = timedelta(seconds=10)  # events begin that long before the page, and the script leaves out what it has


class _Source(NamedTuple):
    """The topic that a tail follows, with its filter."""

    topic: str
    filter: str


async def topic_tail(view: View) -> Page:
    name = f"{view.project}/topics/{view.parts['topic']}"
    return await _page(view, name, _Source(name, view.query.get("filter", "")))


async def subscription_tail(view: View) -> Page:
    name = f"{view.project}/subscriptions/{view.parts['subscription']}"
    found = await view.get(name)
    return await _page(view, name, _source_of(found, view), filter_of_subscription=found.get("filter", ""))


async def follow_topic(view: View, last_event_id: str) -> AsyncIterator[bytes]:
    source = _Source(f"{view.project}/topics/{view.parts['topic']}", view.query.get("filter", ""))
    async for part in _follow(view, source, last_event_id):
        yield part


async def follow_subscription(view: View, last_event_id: str) -> AsyncIterator[bytes]:
    try:
        found = await view.get(f"{view.project}/subscriptions/{view.parts['subscription']}")
    except ApiError as error:
        yield _refused(error.status, error.message)
        return
    async for part in _follow(view, _source_of(found, view), last_event_id):
        yield part


async def _page(view: View, name: str, source: _Source, *, filter_of_subscription: str = "") -> Page:
    asked = view.asked("filter")
    newest = await view.block(
        f"{source.topic}/messages", pageSize=PAGE_SIZE, previewBytes=PREVIEW_BYTES, filter=source.filter
    )
    begin = {**asked, "startTime": format_timestamp(view.now - OVERLAP)}
    topic = source.topic.removeprefix(f"{view.project}/topics/")  # its full name if it is of another project
    return Page(
        template="tail.html",
        title=f"Tail of {leaf(name)}",
        name=name,
        section="topics" if name == source.topic else "subscriptions",
        commands=[
            Command(
                f"broker topic browse {topic} --project {view.parts['project']} --max {PAGE_SIZE}"
                + option(_given(source)),
                f"{source.topic}/messages",
                query={"pageSize": PAGE_SIZE, **_given(source)},
            )
        ],
        data={
            "newest": newest,
            "asked": asked,
            "topic": source.topic,
            "is_topic": name == source.topic,
            "filter_of_subscription": filter_of_subscription,
            "stream": f"{address_of(name)}/tail/events?{urlencode(begin)}",
            "most_rows": MOST_ROWS,
            "overlap_ms": OVERLAP // timedelta(milliseconds=1),
            "states": TAIL_STATES,
            "paused": view.query.get("paused") == "true",
        },
    )


async def _follow(view: View, source: _Source, last_event_id: str) -> AsyncIterator[bytes]:
    try:
        async with view.stream(
            f"{source.topic}:tail",
            last_event_id or view.query.get("lastEventId", ""),
            previewBytes=PREVIEW_BYTES,
            startTime=view.query.get("startTime"),
            **_given(source),
        ) as parts:
            async for part in parts:
                yield shown_events(part, view.project)
    except ApiError as error:
        yield _refused(error.status, error.message)


def shown_events(part: bytes, project: str) -> bytes:
    """Return events for the browser, made of complete events of the API.

    Of more than MOST_AT_ONCE messages the newest are shown, and the others are counted as skipped.
    """
    events = [_fields(each) for each in part.split(b"\n\n") if each and not each.startswith(b":")]
    messages = [each for each in events if each.get("event") == "message"]
    skipped = max(len(messages) - MOST_AT_ONCE, 0)
    skipped += sum(json.loads(each["data"])["messages"] for each in events if each.get("event") == "skipped")
    shown = [event("skipped", {"messages": skipped})] if skipped else []
    shown += [
        event("message", _row(json.loads(each["data"]), project), each["id"]) for each in messages[-MOST_AT_ONCE:]
    ]
    for each in events:
        if each.get("event") == "error":
            error = json.loads(each["data"])["error"]
            shown.append(_refused(error["code"], error["message"]))
    return b"".join(shown) or ALIVE


def _fields(given: bytes) -> dict[str, str]:
    lines = (line.partition(": ") for line in given.decode().split("\n"))
    return {name: value for name, _, value in lines}


def _row(message: Json, project: str) -> Json:
    """Return what the cells of a row have, as text."""
    return {
        "id": message["messageId"],
        "href": address_of(f"{project}/messages/{message['messageId']}"),
        "time": message["publishTime"],
        "key": escaped(message.get("orderingKey", "")),
        "attributes": attribute_line(message.get("attributes", {})),
        "body": preview(message.get("data", "")),
    }


def _refused(status: int, message: str) -> bytes:
    return event("refused", {"status": status, "message": escaped(message)})


def _source_of(subscription: Json, view: View) -> _Source:
    """Return what a subscription receives, as far as the filter of the page matches it."""
    filters = [text for text in (subscription.get("filter", ""), view.query.get("filter", "")) if text]
    joined = filters[0] if len(filters) == 1 else " AND ".join(f"({text})" for text in filters)
    return _Source(subscription["topic"], joined)


def _given(source: _Source) -> dict[str, str]:
    return {"filter": source.filter} if source.filter else {}


_TOPIC = "projects/{project}/topics/{topic}/tail"
_SUBSCRIPTION = "projects/{project}/subscriptions/{subscription}/tail"
PAGES = [
    PageRoute(_TOPIC, topic_tail, ["ListTopicMessages"]),
    PageRoute(_SUBSCRIPTION, subscription_tail, ["Subscriber.GetSubscription", "ListTopicMessages"]),
]
STREAMS = [
    StreamRoute(f"{_TOPIC}/events", follow_topic, ["TailTopic"]),
    StreamRoute(f"{_SUBSCRIPTION}/events", follow_subscription, ["Subscriber.GetSubscription", "TailTopic"]),
]
