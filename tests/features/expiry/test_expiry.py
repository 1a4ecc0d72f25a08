"""Messages that expire, over REST and gRPC, an extension of topics (J3)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from broker.db.database_url import DEFAULT_SCHEMA
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.grpc import channel_to
from tests.fixtures.push_sink import PushSink

ON = {"expiry": True}
Later = Callable[[], Awaitable[None]]


pytestmark = pytest.mark.own_broker(allow_reset=True, min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


@pytest.fixture
async def hours_later(database_url: str) -> Later:
    """The time of whatever expires is over."""

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as admin:
            batches = f"{DEFAULT_SCHEMA}.message_batches"
            await admin.execute(f"UPDATE {batches} SET expires_at = now() WHERE expires_at IS NOT NULL")

    return run


def expiring(data: str, ttl: str = "3600s", **fields: Any) -> Json:
    return message(data, {"broker-ttl": ttl}, **fields)


async def counted(rest: Rest, subscription: str = "sub") -> float:
    lines = (await rest.client.get("/metrics")).text.splitlines()
    name = f'pubsub_subscription_expired_messages_total{{project="p",subscription="{subscription}"}} '
    return float(next(line.removeprefix(name) for line in lines if line.startswith(name)))


async def test_a_message_is_delivered_until_its_time_is_over(rest: Rest, hours_later: Later) -> None:
    assert (await rest.create_topic(extensions=ON))["extensions"] == ON
    for name in ("early", "sub"):
        await rest.create_subscription(name)
    ids = await rest.publish(expiring("a"), "b", expiring("c"))
    received = await rest.pull("early")
    assert [text(each) for each in received] == ["a", "b", "c"]
    assert received[0]["message"]["attributes"] == {"broker-ttl": "3600s"}
    await hours_later()
    await rest.modify_ack_deadline(received[:1], 0, "early")
    await rest.acknowledge(received[1:], "early")
    assert [text(each) for each in await rest.drain()] == ["b"]
    assert await rest.pull("early") == []
    assert (await counted(rest), await counted(rest, "early")) == (2, 1)
    reported = await rest.ok("GET", f"{rest.topic()}/messages/{ids[0]}")
    assert {each["state"] for each in reported["subscriptions"]} == {"EXPIRED"}
    assert all("time to live" in each["verdict"] for each in reported["subscriptions"])


async def test_a_push_is_not_sent_after_its_time(rest: Rest, hours_later: Later, push_sink: PushSink) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    await rest.publish(expiring("a"), "b")
    await hours_later()
    push = {"pushConfig": {"pushEndpoint": f"{push_sink.url}/status/200/expiry"}}
    await rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", push)
    [request] = await push_sink.wait_for("/status/200/expiry", 1)
    assert text(request.json) == "b"
    assert await counted(rest) == 1


async def test_of_a_topic_without_it_the_attribute_is_one_like_any(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(expiring("a", "nonsense"), expiring("b", "0.000001s"))
    assert {text(each) for each in await rest.drain()} == {"a", "b"}


@pytest.mark.parametrize("ttl", ["nonsense", "", "5", "-1s", "0s", "2678401s", "9" * 400 + "s"])
async def test_what_cannot_be_read_is_refused_and_nothing_is_stored(rest: Rest, ttl: str) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    body = {"messages": [message("a"), expiring("b", ttl)]}
    code, why = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert (code, "messages[1].attributes.broker-ttl" in why, repr(ttl[:100]) in why) == (
        "INVALID_ARGUMENT", True, True,
    )  # fmt: skip
    assert await rest.pull() == []


async def test_it_is_a_switch_of_each_topic(rest: Rest) -> None:
    await rest.create_topic()
    change = {"topic": {"extensions": ON}, "updateMask": "extensions.expiry"}
    assert (await rest.ok("PATCH", rest.topic(), change))["extensions"] == ON
    code, why = await rest.error("PUT", rest.topic("other"), {"extensions": {"expiry": 1}})
    assert (code, "extensions.expiry" in why) == ("INVALID_ARGUMENT", True)
    change = {"topic": {}, "updateMask": "extensions.expiry"}
    assert "extensions" not in await rest.ok("PATCH", rest.topic(), change)


async def test_what_expires_is_a_dead_letter_if_the_subscription_says_so(rest: Rest, hours_later: Later) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 2}
    wanted = {"deadLetterPolicy": policy, "extensions": {"deadLetterExpired": True}}
    assert (await rest.create_subscription(**wanted))["extensions"] == {"deadLetterExpired": True}
    ids = await rest.publish(expiring("a"), "b")
    out = await rest.pull(max_messages=1)
    ids += await rest.publish(expiring("c"))
    await rest.modify_ack_deadline(out, 0)
    await hours_later()
    assert [text(each) for each in await rest.drain()] == ["b"]

    async def both_there() -> list[Json]:
        return await rest.pull("dead-sub") if await dead_letters(rest) == {ids[0]: 1, ids[2]: 0} else []

    found = await eventually(both_there)
    assert {each["message"]["attributes"]["broker-dead-letter-reason"] for each in found} == {"expired"}
    assert (await counted(rest), await rest.pull()) == (2, [])
    reported = await rest.ok("GET", f"{rest.topic()}/messages/{ids[0]}")
    assert (reported["subscriptions"][0]["state"], "expired" in reported["subscriptions"][0]["verdict"]) == (
        "DEAD_LETTERED", True,
    )  # fmt: skip
    await rest.modify_ack_deadline(found, 0, "dead-sub")
    started = await rest.ok("POST", f"{rest.subscription()}:redrive", {"reasons": ["expired"]})
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert ended["response"]["redriven"] == "2", ended
    assert {text(each) for each in await rest.drain()} == {"a", "c"}


async def dead_letters(rest: Rest) -> dict[str, int]:
    listed = await rest.ok("GET", f"{rest.subscription()}/deadLetters")
    return {each["sourceMessageId"]: each["deliveryAttempts"] for each in listed.get("deadLetters", [])}


async def test_without_a_dead_letter_topic_what_expires_is_passed(rest: Rest, hours_later: Later) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_topic("dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy, extensions={"deadLetterExpired": True})
    await rest.ok("DELETE", rest.topic("dead"))
    await rest.publish(expiring("a"), "b")
    await hours_later()
    assert [text(each) for each in await rest.drain()] == ["b"]
    assert await counted(rest) == 1


async def test_a_message_that_comes_later_has_its_time_from_then_on(rest: Rest, database_url: str) -> None:
    await rest.create_topic(extensions=ON | {"delay": True})
    await rest.create_subscription()
    attributes = {"broker-ttl": "60s", "broker-delay": "0.1s"}
    await rest.publish(message("a", attributes), message("b", {"broker-delay": "0.1s"}))

    async def came() -> bool:
        return len(await rest.pull()) == 2

    await eventually(came)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as admin:
        found = await admin.execute(
            f"SELECT extract(epoch FROM expires_at - publish_time)::int FROM {DEFAULT_SCHEMA}.messages ORDER BY seq"
        )
        assert await found.fetchall() == [(60,), (None,)]


async def test_it_is_so_beside_repeats(rest: Rest, hours_later: Later) -> None:
    await rest.create_topic(extensions=ON | {"deduplication": {"window": "600s"}})
    await rest.create_subscription()
    once = message("a", {"broker-ttl": "60s", "broker-dedup-id": "1"})
    ids = await rest.publish(once, expiring("b"), once)
    await hours_later()
    assert await rest.publish(once) == [ids[0]]
    assert await rest.pull() == []
    assert await counted(rest) == 2


async def test_a_snapshot_does_not_bring_back_what_is_past_its_time(rest: Rest, hours_later: Later) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    await rest.publish(expiring("a"), "b")
    snapshot = f"{rest.project}/snapshots/before"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    assert {text(each) for each in await rest.drain()} == {"a", "b"}
    await hours_later()
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": snapshot})
    assert [text(each) for each in await rest.drain()] == ["b"]


async def test_what_is_retracted_does_not_expire_besides(rest: Rest, hours_later: Later) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    ids = await rest.publish(expiring("a"), expiring("b"), "c")
    await rest.ok("POST", f"{rest.topic()}:retract", {"messageIds": ids[:1]})
    await hours_later()
    assert [text(each) for each in await rest.drain()] == ["c"]
    assert await counted(rest) == 1
    states = [
        (await rest.ok("GET", f"{rest.topic()}/messages/{id_}"))["subscriptions"][0]["state"] for id_ in ids[:2]
    ]
    assert states == ["RETRACTED", "EXPIRED"]


async def test_googles_client_says_it_by_the_attribute(rest: Rest, hours_later: Later) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()

    def publish() -> None:
        with channel_to(str(rest.client.base_url).rstrip("/")) as channel:
            client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
            client.publish(topic=rest.topic(), messages=[{"data": b"a", "attributes": {"broker-ttl": "9s"}}])

    await asyncio.to_thread(publish)
    await hours_later()
    assert await rest.pull() == []
