"""While a storage limit pauses publishing, whatever adds messages is refused or waits, and the rest goes on."""

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest
from google.api_core.exceptions import ResourceExhausted
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from broker.app.broker import Broker
from broker.core.context.storage import DiskSpace
from tests.fixtures.application import Application, publish
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.grpc import channel_to

LOW = DiskSpace(directory="/data", free=10, min_free=1_000_000_000, is_low=True)
ENOUGH = DiskSpace(directory="/data", free=2_000_000_000, min_free=1_000_000_000, is_low=False)
pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)
DELAYED = {"extensions": {"delay": True}}


class Limited:
    """A broker in this process, whose disk is in the hand of a test."""

    def __init__(self, broker: Broker, rest: Rest) -> None:
        self.broker, self.rest = broker, rest

    def fill(self) -> None:
        self.broker.core.storage.report_disk(LOW)

    def free(self) -> None:
        self.broker.core.storage.report_disk(ENOUGH)

    async def is_refused(self, method: str, path: str, body: Any = None, **options: Any) -> None:
        answer = await self.rest.call(method, path, body, **options)
        error = answer.json()["error"]
        assert (answer.status_code, error["status"]) == (429, "RESOURCE_EXHAUSTED"), answer.text
        assert "--disk-free-min" in error["message"]
        assert "To resume, free disk space" in error["message"]
        assert int(answer.headers["retry-after"]) >= 2
        assert [each["@type"] for each in error["details"]] == ["type.googleapis.com/google.rpc.RetryInfo"]


@pytest.fixture
async def limited(broker: Broker, rest: Rest) -> Limited:
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.create_subscription()
    return Limited(broker, rest)


async def test_publishes_are_refused_with_the_reason_and_pulls_acks_and_deletes_go_on(limited: Limited) -> None:
    rest, path = limited.rest, f"{limited.rest.topic()}:publish"
    await rest.publish("a", "b", "c")
    limited.fill()
    await limited.is_refused("POST", path, {"messages": [message("small")]})
    await limited.is_refused("POST", path, {"messages": [message("large" * 10_000)]})
    await limited.is_refused("POST", f"{rest.topic('nowhere')}:publish", {"messages": [message("x")]})
    with pytest.raises(ResourceExhausted, match="--disk-free-min"):
        await asyncio.to_thread(_publish_by_grpc, str(rest.client.base_url).rstrip("/"), rest.topic())
    received = await rest.pull(max_messages=2)
    await rest.acknowledge(received[:1])
    await rest.modify_ack_deadline(received[1:], 0)
    assert [text(each) for each in await rest.drain()] in (["b", "c"], ["c", "b"])
    await rest.create_subscription("other")
    await rest.ok("POST", f"{rest.subscription('other')}:seek", {"time": "2020-01-01T00:00:00Z"})
    assert await rest.ok("POST", f"{rest.subscription('other')}:purge", {}) == {}
    await rest.ok("DELETE", rest.subscription("other"))
    limited.free()
    assert await rest.publish("later")
    assert [text(each) for each in await rest.drain()] == ["later"]


def _publish_by_grpc(url: str, topic: str) -> None:
    with channel_to(url) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        client.publish(topic=topic, messages=[{"data": b"x"}], retry=None)


async def test_it_is_ready_meanwhile_and_says_so_in_readiness_and_metrics(limited: Limited) -> None:
    assert (await limited.rest.client.get("/readyz")).json() == {"status": "ok"}
    limited.fill()
    answer = await limited.rest.client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    [warning] = answer.json()["warnings"]
    assert warning.startswith("Publishing is paused: 10 bytes are free on the broker's disk; the limit is 1.0 GB")
    metrics = (await limited.rest.client.get("/metrics")).text.splitlines()
    for line in ("broker_storage_low 1.0", "broker_disk_free_bytes 10.0", "broker_disk_free_min_bytes 1e+09"):
        assert line in metrics
    limited.free()
    assert "broker_storage_low 0.0" in (await limited.rest.client.get("/metrics")).text.splitlines()


async def test_an_outage_of_the_embedded_database_is_told_with_its_reason(limited: Limited) -> None:
    limited.broker.core.storage.report_outage("PANIC: could not write to file: No space left on device")
    code, why = await limited.rest.error(
        "POST", f"{limited.rest.topic()}:publish", {"messages": [message("small")]}
    )
    assert (code, "No space left on device" in why) == ("UNAVAILABLE", True)
    answer = await limited.rest.client.get("/readyz")
    assert (answer.status_code, "No space left on device" in answer.json()["reason"]) == (503, True)
    limited.broker.core.storage.report_outage("")
    assert await limited.rest.publish("a")


async def test_a_tick_is_refused_with_the_reason_and_later_ones_publish(limited: Limited) -> None:
    rest, schedule = limited.rest, "projects/p/schedules/each"
    limited.fill()
    body = {"topic": rest.topic(), "message": message("tick"), "interval": "1s"}
    await rest.ok("PUT", schedule, body)

    async def last() -> Json:
        ticks: list[Json] = (await rest.ok("GET", f"{schedule}/ticks")).get("ticks", [])
        return ticks[0] if ticks else {}

    refused = await eventually(last)
    assert (refused["outcome"], "--disk-free-min" in refused["reason"]) == ("REFUSED", True)
    limited.free()

    async def published() -> bool:
        return (await last())["outcome"] == "PUBLISHED"

    await eventually(published)


async def test_a_copy_waits_and_ends_once_there_is_capacity(
    limited: Limited, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = limited.rest
    monkeypatch.setattr("broker.features.operations.runner._MOST_DOUBLINGS", 1)
    await rest.create_topic("other")
    await rest.create_subscription("copies", "other")
    await rest.publish("a", "b")
    limited.fill()
    started = await rest.ok("POST", f"{rest.topic()}:copy", {"targetTopic": rest.topic("other")})
    await eventually(lambda: any("makes no progress" in line.getMessage() for line in caplog.records))
    [said] = [line.getMessage() for line in caplog.records if "makes no progress" in line.getMessage()]
    assert "Publishing is paused" in said
    assert not (await rest.ok("GET", started["name"])).get("done")
    limited.free()
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert (ended["done"], ended["response"]["copied"]) == (True, "2")
    assert sorted(text(each) for each in await rest.drain("copies")) == ["a", "b"]


async def test_an_import_is_refused_and_may_be_sent_again(limited: Limited) -> None:
    rest, params = limited.rest, {"importId": "one", "part": 1}
    part = json.dumps({"data": message("imported")["data"]}) + "\n"
    limited.fill()
    await limited.is_refused("POST", f"{rest.topic()}:import", params=params, content=part)
    limited.free()
    assert (await rest.ok("POST", f"{rest.topic()}:import", params=params, content=part))["messageCount"] == "1"
    assert [text(each) for each in await rest.drain()] == ["imported"]


async def test_dead_letters_and_messages_that_are_due_wait_and_none_is_lost(limited: Limited) -> None:
    rest = limited.rest
    for topic in ("dead", "delayed"):
        await rest.create_topic(topic, **(DELAYED if topic == "delayed" else {}))
        await rest.create_subscription(f"{topic}-sub", topic)
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription("failing", deadLetterPolicy=policy)
    await rest.publish("poison", "healthy")
    await rest.publish(message("due", {"broker-delay": "0.2s"}), topic="delayed")
    limited.fill()
    received = await rest.pull("failing")
    await rest.modify_ack_deadline([each for each in received if text(each) == "poison"], 0, "failing")
    await rest.acknowledge([each for each in received if text(each) == "healthy"], "failing")
    assert await rest.pull("failing") == [], "it is given up"
    workers = limited.broker.workers
    assert await workers["dead-letter forwarder"].run_once() == 0

    async def is_due() -> bool:
        listed = await rest.ok("GET", f"{rest.topic('delayed')}/scheduled")
        [waiting] = listed["scheduledMessages"]
        return datetime.fromisoformat(waiting["deliverTime"]) < limited.broker.core.clock.now()

    await eventually(is_due)
    next_position = await workers["due messages"].run_once()
    assert next_position > limited.broker.core.clock.now(), "and the database is left alone"
    for name in ("dead-sub", "delayed-sub"):
        assert await rest.pull(name) == []
    limited.free()

    async def arrived() -> bool:
        for name in ("dead-sub", "delayed-sub"):
            found.setdefault(name, []).extend(text(each) for each in await rest.drain(name))
        return found == {"dead-sub": ["poison"], "delayed-sub": ["due"]}

    found: dict[str, list[str]] = {}
    await eventually(arrived)


async def test_what_transactions_publish_is_accepted_and_waits(limited: Limited, application: Application) -> None:
    limited.fill()
    with application.session() as session:
        publish(session, "staged", topic=limited.rest.topic())
    await limited.broker.workers["relay"].relay.run_once()
    assert await limited.rest.pull() == []
    limited.free()

    async def arrived() -> list[str]:
        return [text(each) for each in await limited.rest.drain()]

    assert await eventually(arrived) == ["staged"]


async def test_a_dead_letter_is_not_edited_meanwhile(limited: Limited) -> None:
    limited.fill()
    path = f"{limited.rest.subscription()}:editDeadLetter"
    await limited.is_refused("POST", path, {"messageId": "1000000000000001"})
