"""A customer says that a message never reached the webhook: from its id to the reason in one call (F3)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes


async def report(rest: Rest, message_id: str, name: str = "sub") -> Json:
    """What became of a message for one subscription."""
    found = await rest.ok("GET", f"{rest.topic()}/messages/{message_id}")
    [one] = [f for f in found["subscriptions"] if f["subscription"] == rest.subscription(name)]
    report: Json = one
    return report


async def subscribed(rest: Rest, **fields: Any) -> None:
    await rest.create_topic()
    await rest.create_subscription(**fields)


async def test_the_filter_left_it_out(rest: Rest) -> None:
    await subscribed(rest, filter='attributes.env = "prod"')
    [test, prod] = await rest.publish(message("1", {"env": "test"}), message("2", {"env": "prod"}))
    assert await report(rest, test) == {
        "subscription": rest.subscription(),
        "state": "FILTERED",
        "verdict": 'It does not match the filter: attributes.env = "prod"',
    }
    assert (await report(rest, prod))["state"] == "WAITING"
    await rest.drain()
    assert [(await report(rest, id_))["state"] for id_ in (test, prod)] == ["FILTERED", "ACKNOWLEDGED"]


async def test_it_waits_behind_a_backlog(rest: Rest) -> None:
    await subscribed(rest)
    ids = await rest.publish(*map(str, range(50)))
    assert (await report(rest, ids[41]))["verdict"] == (
        "It was never delivered. 41 undelivered messages of its shard precede it."
    )
    await rest.acknowledge(await rest.pull(max_messages=10))
    assert "31 undelivered messages of its shard precede it" in (await report(rest, ids[41]))["verdict"]


async def test_it_is_out_and_then_it_is_acked(rest: Rest) -> None:
    await subscribed(rest)
    [id_] = await rest.publish("1")
    received = await rest.pull()
    out = await report(rest, id_)
    assert (out["state"], out["deliveryAttempt"], out["ackDeadline"] > out["deliverTime"]) == (
        "OUTSTANDING",
        1,
        True,
    )
    await rest.acknowledge(received)
    assert (await report(rest, id_))["state"] == "ACKNOWLEDGED"


async def test_it_was_nacked_and_is_tried_again_later(rest: Rest) -> None:
    await subscribed(rest, retryPolicy={"minimumBackoff": "600s", "maximumBackoff": "600s"})
    [id_] = await rest.publish("1")
    await rest.modify_ack_deadline(await rest.pull(), 0)
    assert ((found := await report(rest, id_))["state"], "retryTime" in found) == ("RETRYING", True)


async def test_it_waits_for_another_of_its_key(rest: Rest) -> None:
    await subscribed(rest, enableMessageOrdering=True)
    first, second, third = await rest.publish(*({"orderingKey": "k"} | message(str(n)) for n in range(3)))
    assert len(await rest.pull(max_messages=2)) == 2
    held = await report(rest, third)
    assert (held["state"], held["blockedByMessageId"]) == ("BLOCKED", first)
    [fourth] = await rest.publish({"orderingKey": "k"} | message("4"))
    assert (await report(rest, fourth))["blockedByMessageId"] == first
    assert (await report(rest, second))["state"] == "OUTSTANDING"


async def test_it_was_published_before_the_subscription_unless_it_was_sought_back(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="600s")
    [id_] = await rest.publish("1")
    await rest.create_subscription()
    assert (await report(rest, id_))["state"] == "BEFORE_SUBSCRIPTION"
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    assert (await report(rest, id_))["state"] == "WAITING"
    await rest.drain()
    assert (await report(rest, id_))["state"] == "ACKNOWLEDGED"


async def test_it_was_sought_past(rest: Rest) -> None:
    await subscribed(rest)
    [id_] = await rest.publish("1")
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2100-01-01T00:00:00Z"})
    settled = await report(rest, id_)
    assert (settled["state"], "skipped it" in settled["verdict"]) == ("SKIPPED", True)


async def test_the_subscription_is_detached(rest: Rest) -> None:
    await subscribed(rest)
    [id_] = await rest.publish("1")
    await rest.ok("POST", f"{rest.subscription()}:detach", {})
    found = await rest.ok("GET", f"{rest.topic()}/messages/{id_}")
    assert [one["state"] for one in found["subscriptions"]] in ([], ["DETACHED"])


@asynccontextmanager
async def pushed(database_url: str, push_sink: PushSink, **config: Any) -> AsyncIterator[Pushes]:
    common: dict[str, Any] = {"min_delivery_attempts": 1, "dead_letter_interval_seconds": 0.1}
    broker = Broker(AppConfig(database_url=database_url, **common, **config))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic()
        yield Pushes(rest, push_sink)


async def test_the_endpoint_fails_and_its_breaker_is_open(database_url: str, push_sink: PushSink) -> None:
    breaker = {"push": {"circuitBreaker": {"failureThreshold": 1, "openDuration": "600s"}}}
    async with pushed(database_url, push_sink) as pushes:
        await pushes.subscribe("/status/500", extensions=breaker)
        [id_] = await pushes.rest.publish("1")

        async def is_reported() -> bool:
            return "circuit breaker is open" in (await report(pushes.rest, id_))["verdict"]

        await eventually(is_reported)


async def test_the_endpoint_fails_and_the_message_was_never_handed_out(
    database_url: str, push_sink: PushSink
) -> None:
    async with pushed(database_url, push_sink, push_failing_after=0.0) as pushes:
        await pushes.subscribe("/status/400")
        ids = await pushes.rest.publish(*map(str, range(20)))

        async def is_reported() -> Json | None:
            found = await report(pushes.rest, ids[-1])
            return found if "deliveryState" in found else None

        reported = await eventually(is_reported)
        assert (reported["state"], reported["deliveryState"]) == ("WAITING", "ENDPOINT_FAILING")
        assert reported["endpointFailure"]["status"] == 400
        assert "The endpoint fails: " in reported["verdict"]
        [lag] = (await pushes.rest.ok("GET", f"{pushes.rest.project}/lag?fresh=true"))["subscriptions"]
        assert (lag["deliveryState"], lag["endpointFailure"]["status"]) == ("ENDPOINT_FAILING", 400)


async def test_the_endpoint_answers_with_an_error(database_url: str, push_sink: PushSink) -> None:
    slow = {"retryPolicy": {"minimumBackoff": "600s", "maximumBackoff": "600s"}}
    async with pushed(database_url, push_sink) as pushes:
        await pushes.subscribe("/status/500", **slow)
        [id_] = await pushes.rest.publish("1")

        async def is_reported() -> Json | None:
            found = await report(pushes.rest, id_)
            return found if found["state"] == "RETRYING" else None

        assert "(attempt 1), failed: push 500; it is redelivered from" in (await eventually(is_reported))["verdict"]


async def test_pushing_is_paused(database_url: str, push_sink: PushSink) -> None:
    async with pushed(database_url, push_sink) as pushes:
        await pushes.subscribe()
        await pushes.rest.ok("POST", f"{pushes.rest.subscription()}:pausePush", {"reason": "Ada looks at it."})
        [id_] = await pushes.rest.publish("1")
        found = await report(pushes.rest, id_)
        assert (found["state"], "Push delivery is paused: Ada looks at it." in found["verdict"]) == (
            "WAITING",
            True,
        )


async def test_it_was_given_up_and_is_a_dead_letter(database_url: str, push_sink: PushSink) -> None:
    async with pushed(database_url, push_sink) as pushes:
        rest = pushes.rest
        await rest.create_topic("dead")
        await rest.create_subscription("letters", "dead")
        policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
        await pushes.subscribe("/status/503", deadLetterPolicy=policy)
        [id_] = await rest.publish("1")

        async def dead_letter() -> Json | None:
            return next(iter(await rest.pull("letters")), None)

        received = await eventually(dead_letter)
        found = await report(rest, id_)
        assert (found["state"], found["deadLetterMessageId"], found["deadLetterReason"]) == (
            "DEAD_LETTERED",
            received["message"]["messageId"],
            "push 503",
        )


async def test_it_expired_before_anybody_had_it(database_url: str, push_sink: PushSink) -> None:
    async with pushed(database_url, push_sink) as pushes:
        rest = pushes.rest
        await rest.create_subscription()
        [id_] = await rest.publish("1")
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute("UPDATE subscriptions SET message_retention = %s", [timedelta(0)])
        assert (await report(rest, id_))["state"] == "EXPIRED"


async def test_it_expired_after_it_was_nacked_as_is_known_once_it_is_let_go(
    database_url: str,
) -> None:
    broker = Broker(AppConfig(database_url=database_url))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/p")
        await subscribed(rest)
        [id_, acked] = await rest.publish("1", "2")
        received = await rest.pull()
        await rest.acknowledge(received[1:])
        await rest.modify_ack_deadline(received[:1], 0)
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute("UPDATE subscriptions SET message_retention = %s", [timedelta(0)])
        waits = await report(rest, id_)
        assert (waits["state"], "(attempt 1, failed: nack)" in waits["verdict"], "retryTime" in waits) == (
            "EXPIRED",
            True,
            False,
        )
        broker.core.resources.drop(None)  # what it knows of the subscription
        assert await rest.pull() == []
        gone = await rest.ok("GET", f"{rest.subscription()}/messages/{id_}")
        assert (gone["state"], [e["event"] for e in gone["timeline"]]) == ("EXPIRED", ["EXPIRED"])
        assert gone["verdict"] == f"Its retention had ended at {gone['timeline'][0]['time']}, after attempt 1."
        assert (await report(rest, acked))["state"] == "ACKNOWLEDGED"


async def test_the_project_alone_finds_its_topic_and_no_other_projects(rest: Rest) -> None:
    await subscribed(rest)
    [id_] = await rest.publish(message("body", {"a": "b"}))
    found = await rest.ok("GET", f"{rest.project}/messages/{id_}")
    assert (found["topic"], found["message"]["attributes"]) == (rest.topic(), {"a": "b"})
    assert found == await rest.ok("GET", f"{rest.topic()}/messages/{id_}") | {"topic": rest.topic()}
    assert (await rest.error("GET", f"projects/another/messages/{id_}"))[0] == "NOT_FOUND"
    await rest.create_topic("other")
    assert (await rest.error("GET", f"{rest.topic('other')}/messages/{id_}"))[0] == "NOT_FOUND"


@pytest.mark.parametrize("id_", ["0", "x", "-1", "9" * 40])
async def test_an_id_that_no_message_has_is_refused_by_name(rest: Rest, id_: str) -> None:
    await rest.create_topic()
    code, text = await rest.error("GET", f"{rest.topic()}/messages/{id_}")
    assert (code, "messageId=" in text) == ("INVALID_ARGUMENT", True)


async def test_a_message_is_found_among_many_of_all_sizes(rest: Rest) -> None:
    await rest.create_topic()
    ids = []
    for count in (1, 7, 100, 1, 1_000, 1, 3):
        ids += [(id_, str(n)) for n, id_ in enumerate(await rest.publish(*map(str, range(count))))]
    for id_, data in ids[:10] + ids[100:1_200:97] + ids[-5:]:
        found = await rest.ok("GET", f"{rest.topic()}/messages/{id_}")
        assert found["message"] == found["message"] | {"messageId": id_, "data": message(data)["data"]}
    beyond = str(int(ids[-1][0]) + 1)
    assert (await rest.error("GET", f"{rest.topic()}/messages/{beyond}"))[0] == "NOT_FOUND"
