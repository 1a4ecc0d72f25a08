"""Events: what fails, is paused or is given up becomes a message on the topic that a project has chosen (F4)."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.context.storage import DiskSpace
from broker.features.events.worker import EventWatch
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.in_process import own_broker, running_in_process
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes

SETTINGS = "projects/p/settings"


class Watched:
    """A broker with a topic for events; `watch` looks whenever a test wants it to."""

    def __init__(self, broker: Broker, pushes: Pushes) -> None:
        self.rest = pushes.rest
        self.pushes = pushes
        self.broker = broker
        publishing = broker.publishing
        late = timedelta(0)  # dead letters are committed before it looks
        self.watch = EventWatch(broker.core, publishing.preparation, publishing.coalescer, late=late)
        self.seen: list[Json] = []

    async def comparison(self) -> list[str]:
        """The types and subjects of all events so far, in order."""
        await self.watch.run_once()
        received = await self.rest.drain("event-sub")
        self.seen += [one["message"] for one in received]
        return [
            f"{one['attributes']['ce-type']} {one['attributes']['ce-subject'].split('/')[-1]}" for one in self.seen
        ]

    def disk(self, free: int) -> None:
        space = DiskSpace(directory="/data", free=free, min_free=10**9, is_low=free < 10**9)
        self.broker.core.storage.report_disk(space)

    async def until(self, *events: str) -> None:
        async def are_seen() -> bool:
            return set(events) <= set(await self.comparison())

        await eventually(are_seen)
        assert sorted(await self.comparison()) == sorted(events)  # each once

    async def until_told(self, *events: str) -> None:
        """The same of events that may have come before."""

        async def are_all() -> bool:
            return sorted(await self.comparison()) == sorted(events)

        await eventually(are_all)
        assert sorted(await self.comparison()) == sorted(events)


@asynccontextmanager
async def watched(database_url: str, push_sink: PushSink, **config: Any) -> AsyncIterator[Watched]:
    common: dict[str, Any] = {"min_delivery_attempts": 1, "dead_letter_interval_seconds": 0.1}
    async with own_broker(database_url, **common, **config) as (broker, rest):
        for topic in ("topic", "events"):
            await rest.create_topic(topic)
        await rest.create_subscription("event-sub", "events")
        assert await rest.ok("PATCH", SETTINGS, {"eventTopic": rest.topic("events")}) == await rest.ok(
            "GET", SETTINGS
        )
        yield Watched(broker, Pushes(rest, push_sink))


async def test_an_endpoint_that_fails_is_an_event_and_so_is_its_recovery(
    database_url: str, push_sink: PushSink
) -> None:
    """Its circuit breaker stays closed: an endpoint is reported by time."""
    async with watched(database_url, push_sink, push_failing_after=0.0) as it:
        path = await it.pushes.subscribe("/status/400")
        await it.rest.publish("1", "2")
        await it.until("pubsub.push.failing sub")
        event = json.loads(base64.b64decode(it.seen[0]["data"]))
        failure = event["endpointFailure"]
        assert (failure["status"], failure["reason"]) == (400, "Bad Request")
        assert failure["failedRequests"] >= 1
        assert event["since"] == failure["startTime"]
        assert "without a success; the last one: status 400 (Bad Request)" in event["reason"]
        await push_sink.program(path, "/status/200")
        await it.until("pubsub.push.failing sub", "pubsub.push.recovered sub")
        recovered = json.loads(base64.b64decode(it.seen[1]["data"]))
        assert recovered["since"] == event["since"]


async def test_processes_that_look_at_the_same_time_publish_one_event(
    database_url: str, push_sink: PushSink
) -> None:
    async with (
        watched(database_url, push_sink, push_failing_after=0.0) as it,
        running_in_process(Broker(AppConfig(database_url=database_url, push_failing_after=0.0))),
    ):
        await it.pushes.subscribe("/status/503")
        await it.rest.publish("1")
        await it.until("pubsub.push.failing sub")


async def test_a_failing_endpoint_that_is_paused_has_not_recovered(database_url: str, push_sink: PushSink) -> None:
    async with watched(database_url, push_sink, push_failing_after=0.0) as it:
        await it.pushes.subscribe("/status/503")
        await it.rest.publish("1")
        await it.until("pubsub.push.failing sub")
        await it.rest.ok("POST", f"{it.rest.subscription()}:pausePush")
        await it.until("pubsub.push.failing sub", "pubsub.push.paused sub")


async def test_a_message_that_fails_while_others_are_delivered_is_an_event_with_its_id(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink, push_failing_after=0.0) as it:
        # Of two requests that are sent together one fails at once, and again after the other one has succeeded.
        await it.pushes.subscribe("/status/409", "/delay/0.5", "/status/409")
        published = await it.rest.publish("1", "2")

        async def is_reported() -> Json | None:
            await it.comparison()
            reported = [one for one in it.seen if one["attributes"]["ce-type"] == "pubsub.push.messageFailing"]
            return reported[0] if reported else None

        event: Json = await eventually(is_reported)
        failing = json.loads(base64.b64decode(event["data"]))["failingMessage"]
        assert failing["messageId"] in published
        assert (failing["status"], failing["reason"]) == (409, "Conflict")
        assert event["attributes"]["ce-subject"] == f"{it.rest.subscription()}/messages/{failing['messageId']}"
        status = await it.rest.ok("GET", f"{it.rest.subscription()}:pushStatus")
        assert [one["messageId"] for one in status["failingMessages"]] == [failing["messageId"]]


async def test_a_pause_and_its_end_are_told_and_nothing_of_the_event_topic_itself(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        for name, topic in (("sub", "topic"), ("of-events", "events")):
            await it.pushes.subscribe(name=name, topic=topic)
            await it.rest.ok("POST", f"{it.rest.subscription(name)}:pausePush", {"reason": "Ada looks at it."})
        await it.until("pubsub.push.paused sub")
        await it.rest.ok("POST", f"{it.rest.subscription()}:resumePush")
        await it.until("pubsub.push.paused sub", "pubsub.push.resumed sub")


async def test_the_first_dead_letter_is_told_and_a_growing_pile(database_url: str, push_sink: PushSink) -> None:
    async with watched(database_url, push_sink) as it:
        await it.rest.create_topic("dead")
        await it.rest.create_subscription("letters", "dead")
        policy = {"deadLetterTopic": it.rest.topic("dead"), "maxDeliveryAttempts": 1}
        await it.rest.create_subscription(deadLetterPolicy=policy)
        for count, reported in ((1, ["first"]), (20, ["first", "growing"])):
            await it.rest.publish(*map(str, range(count)))
            received = await it.rest.pull("sub", count)
            await it.rest.ok(
                "POST", f"{it.rest.subscription()}:nack", {"ackIds": [one["ackId"] for one in received]}
            )
            dead_letters: list[Json] = []
            while len(dead_letters) < count:
                dead_letters += await it.rest.pull("letters", count, wait=True)
            await it.until(*(f"pubsub.deadLetters.{one} sub" for one in reported))


async def test_of_a_subscription_that_is_gone_no_dead_letter_is_told(
    database_url: str, push_sink: PushSink
) -> None:
    """They are counted some seconds late: each look would find a first one again."""
    async with watched(database_url, push_sink) as it:
        await it.rest.create_topic("dead")
        await it.rest.create_subscription("letters", "dead")
        policy = {"deadLetterTopic": it.rest.topic("dead"), "maxDeliveryAttempts": 1}
        await it.rest.create_subscription(deadLetterPolicy=policy)
        await it.rest.publish("poison")
        await it.rest.modify_ack_deadline(await it.rest.pull(wait=True), 0)
        assert await it.rest.pull("letters", wait=True)
        await it.rest.ok("DELETE", it.rest.subscription())
        assert await it.comparison() == []


async def test_events_wait_for_their_topic_and_go_where_it_is_made_again(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        await it.pushes.subscribe()
        await it.rest.ok("DELETE", it.rest.topic("events"))
        await it.rest.ok("POST", f"{it.rest.subscription()}:pausePush", {"reason": "Ada looks at it."})
        assert await it.watch.run_once() == 0
        await it.rest.create_topic("events")
        await it.rest.ok("DELETE", it.rest.subscription("event-sub"))
        await it.rest.create_subscription("event-sub", "events")
        await it.until("pubsub.push.paused sub")


async def test_events_go_to_a_topic_of_the_project_itself_that_exists(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        before = await it.rest.ok("GET", SETTINGS)
        for topic, code in (
            ("projects/other/topics/events", "INVALID_ARGUMENT"),
            ("events", "INVALID_ARGUMENT"),
            (it.rest.topic("none"), "NOT_FOUND"),
        ):
            assert (await it.rest.error("PATCH", SETTINGS, {"eventTopic": topic}))[0] == code
        assert await it.rest.ok("GET", SETTINGS) == before
        assert await it.rest.ok("PATCH", SETTINGS, {"eventTopic": ""}) == {"name": SETTINGS}
        await it.pushes.subscribe()
        await it.rest.ok("POST", f"{it.rest.subscription()}:pausePush", {"reason": "Ada looks at it."})
        assert await it.comparison() == []


async def test_a_subscription_that_lags_by_its_marks_is_told_of_with_what_holds_it(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        alerts = {"alerts": {"backlog": 10, "age": "600s"}}
        created = await it.rest.create_subscription(extensions=alerts)
        assert created["extensions"] == alerts
        await it.rest.publish(*map(str, range(12)))
        await it.watch.check_lags()
        await it.until("pubsub.subscription.backlogReached sub")
        reason = json.loads(base64.b64decode(it.seen[0]["data"]))["reason"]
        assert reason.startswith("12 messages are not acked, 10 are the mark. ")
        await it.rest.acknowledge(await it.rest.pull("sub", 3))
        await it.watch.check_lags()
        assert len(await it.comparison()) == 1  # 9 are nearly as many
        await it.rest.drain()
        await it.watch.check_lags()
        await it.until("pubsub.subscription.backlogReached sub", "pubsub.subscription.caughtUp sub")


async def test_alerts_out_of_bounds_are_refused(rest: Rest) -> None:
    await rest.create_topic()
    for alerts, field in (
        ({"backlog": 0}, "backlog=0"),
        ({"age": "9s"}, "age=9s"),
        ({"age": "soon"}, "age"),
    ):
        body = {"topic": rest.topic(), "extensions": {"alerts": alerts}}
        code, text = await rest.error("PUT", rest.subscription(), body)
        assert (code, field in text) == ("INVALID_ARGUMENT", True)


async def test_a_storage_limit_that_pauses_publishing_is_told_of_once_and_so_is_its_end(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        it.disk(free=10**6)
        for _ in range(3):
            assert await it.comparison() == ["pubsub.disk.low disk"]
        [event] = it.seen
        assert event["attributes"]["ce-subject"] == "projects/p/storage/disk"
        assert "1 MB are free" in json.loads(base64.b64decode(event["data"]))["reason"]
        it.disk(free=2 * 10**9)
        await it.until("pubsub.disk.low disk", "pubsub.disk.recovered disk")


async def test_tables_that_take_too_much_are_told_of_by_whichever_process_looks(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it, it.broker.core.database.connection() as connection:
        await connection.execute(
            "INSERT INTO table_sizes VALUES (100, 120, true, clock_timestamp(), clock_timestamp())"
        )
        assert await it.comparison() == ["pubsub.disk.low tables"]
        assert "120 bytes" in json.loads(base64.b64decode(it.seen[0]["data"]))["reason"]
        await connection.execute("UPDATE table_sizes SET is_full = false")
        await it.until("pubsub.disk.low tables", "pubsub.disk.recovered tables")


async def test_a_changed_filter_is_an_event_once_it_is_committed(database_url: str, push_sink: PushSink) -> None:
    async with watched(database_url, push_sink) as it:
        await it.rest.create_subscription(filter="attributes:a")
        for wanted in ("attributes:b", "attributes:b"):  # the second time it is no change
            await it.rest.ok("POST", f"{it.rest.subscription()}:setFilter", {"filter": wanted})
        await it.rest.ok("POST", f"{it.rest.subscription('event-sub')}:setFilter", {"filter": "attributes:ce-id"})
        await it.until("pubsub.subscription.filterChanged sub")
        event = json.loads(base64.b64decode(it.seen[0]["data"]))
        assert (event["previousFilter"], event["filter"]) == ("attributes:a", "attributes:b")
        assert event["reason"] == "the filter was changed from 'attributes:a' to 'attributes:b'"


async def test_dead_letters_without_their_topic_are_an_event_until_it_is_there_again(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        await it.rest.create_topic("dead")
        policy = {"deadLetterTopic": it.rest.topic("dead"), "maxDeliveryAttempts": 5}
        await it.rest.create_subscription(deadLetterPolicy=policy)
        assert await it.comparison() == []
        await it.rest.ok("DELETE", it.rest.topic("dead"))
        await it.until("pubsub.deadLetters.blocked sub")
        reason = json.loads(base64.b64decode(it.seen[0]["data"]))["reason"]
        assert reason == f"there is no topic {it.rest.topic('dead')}"
        await it.rest.create_topic("dead")
        await it.until("pubsub.deadLetters.blocked sub", "pubsub.deadLetters.forwarded sub")
        await it.rest.ok("DELETE", it.rest.topic("dead"))
        reported = ["pubsub.deadLetters.blocked sub"] * 2 + ["pubsub.deadLetters.forwarded sub"]
        await it.until_told(*reported)
        await it.rest.ok("DELETE", it.rest.subscription())  # which is not told: nothing is forwarded
        await it.until_told(*reported)


async def test_a_schedule_that_is_refused_is_an_event_until_it_publishes_or_is_gone(
    database_url: str, push_sink: PushSink
) -> None:
    async with watched(database_url, push_sink) as it:
        schedule = "projects/p/schedules/nightly"
        body = {"topic": it.rest.topic(), "message": message("a"), "schedule": "0 3 * * *"}
        await it.rest.ok("PUT", schedule, body)
        await it.rest.ok("POST", f"{it.rest.topic()}:freeze", {"reason": "It moves."})
        assert (await it.rest.call("POST", f"{schedule}:run", {})).status_code == 400
        await it.until("pubsub.schedule.refused nightly")
        assert "FAILED_PRECONDITION: " in json.loads(base64.b64decode(it.seen[0]["data"]))["reason"]
        await it.rest.ok("POST", f"{it.rest.topic()}:unfreeze", {})
        await it.rest.ok("POST", f"{schedule}:run", {})
        reported = ["pubsub.schedule.refused nightly", "pubsub.schedule.accepted nightly"]
        await it.until(*reported)
        await it.rest.ok("POST", f"{it.rest.topic()}:freeze", {})
        assert (await it.rest.call("POST", f"{schedule}:run", {})).status_code == 400
        reported.append("pubsub.schedule.refused nightly")
        await it.until_told(*reported)
        await it.rest.ok("DELETE", schedule)
        await it.until_told(*reported)
