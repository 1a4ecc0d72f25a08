"""Following messages in the console: events of the API become events for a page."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.console import app
from broker.console.event_stream import ALIVE
from broker.console.pages.tails import MOST_AT_ONCE, shown_events
from broker.core.process.tails import MAX_TAILS_OF_PROJECT
from tests.console.sample import HOSTILE
from tests.fixtures.access import guarded
from tests.fixtures.broker import Json, Rest, eventually, message

Event = tuple[str, str, Json]  # kind, id, data


class Events:
    """The events of a stream, without those that only say that it is alive."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.lines = response.aiter_lines()

    async def next(self) -> Event:
        while (event := await self.any())[0] == "alive":
            pass
        return event

    async def any(self) -> Event:
        """Raises StopAsyncIteration at the end."""
        kind = id_ = ""
        async with asyncio.timeout(60):
            while True:
                name, _, value = (await anext(self.lines)).partition(": ")
                if name == "event":
                    kind = value
                elif name == "id":
                    id_ = value
                elif name == "data":
                    return kind, id_, json.loads(value)


@asynccontextmanager
async def following(
    client: httpx.AsyncClient, path: str, params: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Events]:
    """The events of a page, once they have begun."""
    async with client.stream("GET", f"/console/{path}/tail/events", params=params, **options) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        yield Events(response)


async def begun(events: Events) -> Events:
    assert (await events.any())[0] == "alive"
    return events


async def test_what_is_published_comes_as_text(rest: Rest) -> None:
    await rest.create_topic()
    async with following(rest.client, rest.topic()) as events:
        await begun(events)
        [id_] = await rest.publish(message(HOSTILE, {"env": HOSTILE}, orderingKey="a\u202eb"))
        kind, event_id, row = await events.next()
    assert (kind, row["id"], row["href"]) == ("message", id_, f"/console/{rest.project}/messages/{id_}")
    assert event_id
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x07", "\\x07")
    assert (row["body"], row["attributes"], row["key"]) == (shown, f"env={shown}", "a\\u202eb")


async def test_a_page_goes_on_behind_the_last_event_that_it_had(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    async with following(rest.client, rest.topic()) as events:
        await begun(events)
        await rest.publish("one")
        _, last, _ = await events.next()
    await rest.publish("two")
    async with following(rest.client, rest.topic(), headers={"Last-Event-ID": last}) as events:
        assert (await events.next())[2]["body"] == "two"
    async with following(rest.client, rest.topic(), {"lastEventId": last}) as events:
        assert (await events.next())[2]["body"] == "two"
    async with following(rest.client, rest.topic(), {"startTime": "2000-01-01T00:00:00Z"}) as events:
        assert [(await events.next())[2]["body"] for _ in range(2)] == ["one", "two"]


async def test_a_page_of_a_subscription_follows_what_it_receives(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter='attributes.region = "eu"')
    asked = {"filter": 'attributes.env = "prod"'}
    async with following(rest.client, rest.subscription(), asked) as events:
        await begun(events)
        await rest.publish(message("a", {"region": "us", "env": "prod"}), message("b", {"region": "eu"}))
        await rest.publish(message("c", {"region": "eu", "env": "prod"}))
        assert (await events.next())[2]["body"] == "c"
    page = (await rest.client.get(f"/console/{rest.subscription()}/tail")).text
    assert "attributes.region = &#34;eu&#34;" in page


@pytest.mark.parametrize(
    ("path", "params", "status", "why"),
    [
        ("topics/none", {}, 404, "Topic not found"),
        ("subscriptions/none", {}, 404, "Subscription"),
        ("topics/topic", {"filter": "attributes."}, 400, "filter"),
        ("topics/topic", {"startTime": "noon"}, 400, "startTime"),
        ("topics/topic", {"lastEventId": "nonsense"}, 400, "Last-Event-ID"),
    ],
)
async def test_what_cannot_be_followed_is_refused_with_the_reason_of_the_api(
    rest: Rest, path: str, params: Mapping[str, str], status: int, why: str
) -> None:
    await rest.create_topic()
    async with following(rest.client, f"{rest.project}/{path}", params) as events:
        kind, _, refused = await events.next()
        assert (kind, refused["status"]) == ("refused", status)
        assert why.lower() in refused["message"].lower()
        with pytest.raises(StopAsyncIteration):
            await events.any()


@pytest.mark.own_broker(console="on")
async def test_pages_share_one_tail_which_ends_with_the_last(broker: Broker, rest: Rest) -> None:
    """A project has at most MAX_TAILS_OF_PROJECT tails."""
    await rest.create_topic()
    many = MAX_TAILS_OF_PROJECT + 2
    watched = broker.parts.messages.claiming.tails.watched_shards
    async with AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(following(rest.client, rest.topic())) for _ in range(many)]
        for events in pages:
            await begun(events)
        [id_] = await rest.publish("one")
        assert [(await events.next())[2]["id"] for events in pages] == [id_] * many
    await eventually(lambda: not watched())


async def test_a_key_that_is_deleted_ends_the_events_and_the_page_learns_why(database_url: str) -> None:
    async with guarded(database_url, console="auto") as world:
        topic = f"{world.project}/topics/orders"
        await world.ok("PUT", topic, {})
        account = await world.account("viewer", role="roles/pubsub.editor")
        key = await world.key(account)
        await world.client.post("/console/login", data={"credential": json.dumps(key)})
        async with following(world.client, topic) as events:
            await begun(events)
            await world.ok("DELETE", key["name"])
            assert [line async for line in events.lines if line.startswith("event: ")] in ([], ["event: alive"])
        async with following(world.client, topic) as events:
            kind, _, refused = await events.next()
            assert (kind, refused["status"]) == ("refused", 401)


async def test_signing_out_ends_the_stream_of_somebody_who_has_copied_the_cookie(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SESSION_SECONDS", 0.0)
    async with guarded(database_url, console="on") as world:
        topic = f"{world.project}/topics/orders"
        await world.ok("PUT", topic, {})
        await world.client.post("/console/login", data={"credential": json.dumps(world.admin)})
        copied = world.client.cookies["broker_session"]
        async with (
            httpx.AsyncClient(base_url=world.client.base_url, cookies={"broker_session": copied}) as other,
            following(other, topic) as events,
        ):
            await begun(events)
            await world.ok("POST", f"{topic}:publish", {"messages": [message("one")]})
            assert (await events.next())[2]["body"] == "one"
            await world.client.post("/console/logout")
            await world.ok("POST", f"{topic}:publish", {"messages": [message("two")]})
            assert "event: message" not in [line async for line in events.lines]


def api_event(number: int) -> bytes:
    fields = {"messageId": str(number), "publishTime": "2026-01-01T00:00:00.000Z"}
    return b"event: message\nid: i%d\ndata: %b\n\n" % (number, json.dumps(fields).encode())


def events_of(part: bytes) -> list[Event]:
    found = []
    for each in part.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in each.split("\n"))
        found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return found


def test_of_many_messages_at_once_the_newest_are_shown_and_the_others_counted() -> None:
    skipped = b'event: skipped\nid: x\ndata: {"messages": 7}\n\n'
    part = skipped + b"".join(map(api_event, range(MOST_AT_ONCE + 5)))
    first, *others = events_of(shown_events(part, "projects/p"))
    assert first == ("skipped", "", {"messages": 12})
    assert [event[1] for event in others] == [f"i{n}" for n in range(5, MOST_AT_ONCE + 5)]


def test_a_comment_shows_that_the_stream_is_alive_and_an_error_ends_it() -> None:
    assert shown_events(b": alive\n\n", "projects/p") == ALIVE
    error = b'event: error\ndata: {"error": {"code": 404, "message": "gone\\u202e", "status": "NOT_FOUND"}}\n\n'
    assert events_of(shown_events(error, "projects/p")) == [
        ("refused", "", {"status": 404, "message": "gone\\u202e"})
    ]


async def test_the_tail_of_a_subscription_names_a_topic_of_another_project_in_full(rest: Rest) -> None:
    there = f"{rest.project}-there/topics/orders"
    await rest.ok("PUT", there, {})
    await rest.ok("PUT", rest.subscription("billing"), {"topic": there})
    answer = await rest.client.get(f"/console/{rest.subscription('billing')}/tail")
    assert f"broker topic browse {there} --project" in answer.text
