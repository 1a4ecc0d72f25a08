""" "Did you deliver it?" is answered by default: by whom a message was acknowledged, or how else it ended (F3)."""

import asyncio
from datetime import datetime, timedelta

import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.log.partitions import MESSAGES, RECORDS, drop_partition, list_partitions, make_partitions_ahead
from broker.core.records.delivery_record_rows import drop_old_records
from broker.features.delayed.rows import delete_scheduled_ids
from broker.model.timestamps import parse_timestamp
from tests.conformance.test_transforms import ODD
from tests.core.pulling.stream import Streams
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes


async def ended(rest: Rest, message_id: str, name: str = "sub") -> Json:
    """What is told of a message for one subscription, as for all those of its topic."""
    found = await rest.ok("GET", f"{rest.topic()}/messages/{message_id}")
    [one] = [f for f in found["subscriptions"] if f["subscription"] == rest.subscription(name)]
    alone = await rest.ok("GET", f"{rest.subscription(name)}/messages/{message_id}")
    assert alone == one | {"messageId": message_id, "timeline": alone["timeline"]}
    attribution: Json = one
    return attribution


async def _until_acked(rest: Rest, message_id: str) -> None:
    async def acked() -> bool:
        found = await rest.ok("GET", f"{rest.subscription()}/messages/{message_id}")
        return bool(found["state"] == "ACKNOWLEDGED")

    await eventually(acked)


@pytest.fixture
async def subscribed(rest: Rest) -> Rest:
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.create_subscription()
    return rest


async def test_who_acknowledged_a_message_is_told_with_the_time_and_the_attempt(subscribed: Rest) -> None:
    rest = subscribed
    [id_] = await rest.publish("1")
    before = datetime.now().astimezone() - timedelta(minutes=1)
    await rest.modify_ack_deadline(await rest.pull(), 0)
    await rest.acknowledge(await rest.pull())
    attribution = await ended(rest, id_)
    assert (attribution["state"], attribution["deliveryAttempt"], attribution["client"]) == (
        "ACKNOWLEDGED",
        2,
        "REST client 127.0.0.1",
    )
    assert (
        attribution["verdict"] == f"It was acked at {attribution['endTime']} by REST client 127.0.0.1 (attempt 2)."
    )
    assert before < parse_timestamp(attribution["endTime"], "endTime") < before + timedelta(minutes=5)
    timeline = (await rest.ok("GET", f"{rest.subscription()}/messages/{id_}"))["timeline"]
    assert [(each["event"], each["deliveryAttempt"]) for each in timeline] == [("HANDED_OUT", 2), ("ACKED", 2)]
    assert timeline[0]["time"] <= timeline[1]["time"] == attribution["endTime"]


async def test_an_ack_over_grpc_is_told_as_such(subscribed: Rest, broker_url: str) -> None:
    rest = subscribed
    [id_] = await rest.publish("1")
    with channel_to(broker_url) as channel:
        over_grpc = GrpcRest(channel, rest.project)
        await over_grpc.acknowledge(await rest.pull())
    assert (await ended(rest, id_))["client"].startswith("gRPC client ")


async def test_an_ack_on_a_stream_is_told_with_the_name_that_the_client_gives_itself(
    subscribed: Rest, broker_url: str
) -> None:
    rest = subscribed
    [id_] = await rest.publish("1")
    streams = Streams(broker_url, rest)
    try:
        stream = await streams.open(client_id="worker-7")
        await stream.ack(await stream.take())
        await _until_acked(rest, id_)
    finally:
        await streams.close()
    assert (await ended(rest, id_))["client"] == "StreamingPull client worker-7"


async def test_what_an_endpoint_answered_is_told_without_a_journal(rest: Rest, push_sink: PushSink) -> None:
    await rest.create_topic()
    await Pushes(rest, push_sink).subscribe("/status/500", "/status/201")
    [id_] = await rest.publish("1")
    await _until_acked(rest, id_)
    attribution = await ended(rest, id_)
    assert (attribution["client"], attribution["answer"], attribution["deliveryAttempt"]) == ("push", "201", 2)
    assert (
        attribution["verdict"] == f"It was acked at {attribution['endTime']}, pushed and answered 201 (attempt 2)."
    )


@pytest.mark.parametrize("kind", [{}, {"enableExactlyOnceDelivery": True}, {"enableMessageOrdering": True}])
async def test_an_ack_that_is_repeated_or_stale_is_told_once(rest: Rest, kind: Json) -> None:
    await rest.create_topic()
    await rest.create_subscription(**kind)
    ids = await rest.publish(*({"orderingKey": "k"} | message(str(n)) for n in range(3)))
    first = await rest.pull()
    await rest.modify_ack_deadline(first[1:], 0)
    await rest.acknowledge(first[:1])
    again = await rest.pull()
    stale = {"ackIds": [each["ackId"] for each in first]}
    await rest.call("POST", f"{rest.subscription()}:acknowledge", stale)  # refused with exactly-once delivery
    for _ in range(2):
        await rest.call("POST", f"{rest.subscription()}:acknowledge", {"ackIds": [e["ackId"] for e in again]})
    timelines = [(await rest.ok("GET", f"{rest.subscription()}/messages/{id_}"))["timeline"] for id_ in ids]
    assert [[(e["event"], e["deliveryAttempt"]) for e in timeline] for timeline in timelines] == [
        [("HANDED_OUT", n), ("ACKED", n)] for n in (1, 2, 2)
    ]


async def test_each_other_end_has_a_name_of_its_own(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="600s")
    for name in ("acked", "purged", "filtered", "sought"):
        await rest.create_subscription(name)
    await rest.create_subscription("dropped", messageTransforms=[ODD])
    [id_] = await rest.publish("2")  # which is even
    await rest.drain("acked")
    assert await rest.pull("dropped") == []
    operation = await rest.ok("POST", f"{rest.subscription('filtered')}:purge", {"filter": "NOT attributes:a"})
    await rest.ok("POST", f"{operation['name']}:wait", {})
    await rest.ok("POST", f"{rest.subscription('purged')}:purge", {})
    await rest.ok("POST", f"{rest.subscription('sought')}:seek", {"time": "2100-01-01T00:00:00Z"})
    attribution = {
        name: await ended(rest, id_, name) for name in ("acked", "purged", "filtered", "sought", "dropped")
    }
    assert {name: each["state"] for name, each in attribution.items()} == {
        "acked": "ACKNOWLEDGED",
        "purged": "PURGED",
        "filtered": "PURGED",
        "sought": "SKIPPED",
        "dropped": "DROPPED",
    }
    dropped = attribution["dropped"]
    assert dropped["verdict"] == f"A transform of the subscription dropped it at {dropped['endTime']}."
    for purged in (attribution["purged"], attribution["filtered"]):
        assert purged["verdict"] == f"It was purged at {purged['endTime']}."
    assert attribution["sought"]["verdict"] == f"A seek at {attribution['sought']['endTime']} skipped it."


async def test_a_dead_letter_that_was_discarded_is_told_so(rest: Rest) -> None:
    await rest.create_topic("dead")
    await rest.create_topic()
    await rest.create_subscription("letters", "dead")
    await rest.create_subscription(
        deadLetterPolicy={"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 5}
    )
    await rest.publish("1")
    await rest.ok("POST", f"{rest.subscription()}:reject", {"ackIds": [(await rest.pull())[0]["ackId"]]})

    async def dead_letters() -> list[Json]:
        found = await rest.ok("GET", f"{rest.subscription('letters')}/messages")
        return list(found.get("messages", []))

    [dead_letter] = await eventually(dead_letters)
    await rest.ok("POST", f"{rest.subscription()}:discard", {"reasons": ["reject"]})
    attribution = await rest.ok(
        "GET", f"{rest.subscription('letters')}/messages/{dead_letter['message']['messageId']}"
    )
    assert (attribution["state"], attribution["verdict"]) == (
        "DISCARDED",
        f"It was discarded at {attribution['endTime']}.",
    )


async def test_what_a_transform_of_the_topic_dropped_is_told_apart_from_what_never_was(rest: Rest) -> None:
    await rest.create_topic(messageTransforms=[ODD], messageRetentionDuration="600s")
    await rest.create_subscription()
    ids = await rest.publish("1", "2", "3", "4")
    for dropped in (ids[1], ids[3]):  # between others, and the newest
        attribution = await rest.ok("GET", f"{rest.topic()}/messages/{dropped}")
        assert attribution["message"] == {"messageId": dropped}
        assert (attribution["verdict"], attribution["subscriptions"]) == (
            "A transform of the topic dropped it when it was published: it was never stored.",
            [],
        )
    assert (await rest.ok("GET", f"{rest.topic()}/messages/{ids[2]}"))["message"]["messageId"] == ids[2]
    never = str(int(ids[3]) + 1)
    assert (await rest.error("GET", f"{rest.topic()}/messages/{never}"))[0] == "NOT_FOUND"


async def test_a_message_that_is_gone_is_told_of_for_a_day(database_url: str) -> None:
    broker = Broker(AppConfig(database_url=database_url, janitor_interval_seconds=300))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/gone")
        await rest.create_topic()
        await rest.create_subscription()
        [id_, other] = await rest.publish("1", "2")
        await rest.acknowledge(await rest.pull())
        assert (await ended(rest, id_))["state"] == "ACKNOWLEDGED"
        async with broker.core.database.connection() as connection:
            for partition in await list_partitions(connection, MESSAGES):
                assert await drop_partition(connection, partition, MESSAGES)
        found = await rest.ok("GET", f"{rest.topic()}/messages/{id_}")
        assert (found["message"], found["verdict"]) == ({"messageId": id_}, "It is no longer retained.")
        attribution = await ended(rest, id_)
        assert (attribution["state"], attribution["deliveryAttempt"]) == ("ACKNOWLEDGED", 1)
        now, day = broker.core.clock.now(), timedelta(days=1)
        async with broker.core.database.connection() as connection:
            [first, *_] = await list_partitions(connection, RECORDS)
            assert await drop_old_records(connection, now=now + day - timedelta(seconds=1), kept=day) == 0
            assert await drop_old_records(connection, now=first.end + day, kept=day) >= 1
        assert (await rest.error("GET", f"{rest.topic()}/messages/{other}"))[0] == "NOT_FOUND"


async def test_a_message_that_came_later_is_found_by_its_id_for_a_day_after_it_is_gone(database_url: str) -> None:
    """Its id leads to its place in the log through a row that the janitor deletes."""
    broker = Broker(AppConfig(database_url=database_url, janitor_interval_seconds=300))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/gone")
        await rest.create_topic(extensions={"delay": True})
        await rest.create_subscription()
        [id_] = await rest.publish(message("1", attributes={"broker-delay": "1s"}))
        await rest.acknowledge(await eventually(rest.pull))
        now, day = broker.core.clock.now(), timedelta(days=1)
        async with broker.core.database.connection() as connection:
            assert await delete_scheduled_ids(connection, now=now + 2 * day, kept=day) == 0  # the log has it
            for partition in await list_partitions(connection, MESSAGES):
                assert await drop_partition(connection, partition, MESSAGES)
            await make_partitions_ahead(connection, now=now + day)
            assert await delete_scheduled_ids(connection, now=now, kept=day) == 0
        assert (await ended(rest, id_))["state"] == "ACKNOWLEDGED"
        async with broker.core.database.connection() as connection:
            assert await delete_scheduled_ids(connection, now=now + day - timedelta(seconds=1), kept=day) == 0
            assert await delete_scheduled_ids(connection, now=now + day, kept=day) == 1
        assert (await rest.error("GET", f"{rest.topic()}/messages/{id_}"))[0] == "NOT_FOUND"


async def test_records_are_kept_as_long_as_a_message_that_is_older_is_retained(database_url: str) -> None:
    broker = Broker(AppConfig(database_url=database_url, janitor_interval_seconds=300))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/kept")
        await rest.create_topic()
        await rest.create_subscription()
        [id_] = await rest.publish("1")
        await rest.drain()
        assert (await ended(rest, id_))["state"] == "ACKNOWLEDGED"
        later, day = broker.core.clock.now() + timedelta(days=10), timedelta(days=1)
        async with broker.core.database.connection() as connection:
            assert await drop_old_records(connection, now=later, kept=day) == 0  # its partition is there
        assert (await ended(rest, id_))["state"] == "ACKNOWLEDGED"


async def test_an_ack_without_a_record_is_told_as_such(database_url: str) -> None:
    broker = Broker(AppConfig(database_url=database_url, delivery_record_hours=0))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/off")
        await rest.create_topic()
        await rest.create_subscription()
        [id_] = await rest.publish("1")
        await rest.drain()
        attribution = await ended(rest, id_)
        assert (
            attribution["state"],
            attribution["verdict"].startswith("It was acked. By whom and when is not on record"),
        ) == (
            "SETTLED",
            True,
        )
        with psycopg.connect(database_url, autocommit=True) as admin:
            assert admin.execute("SELECT count(*) FROM delivery_records").fetchone() == (0,)


async def test_records_of_many_acks_are_few_rows(database_url: str) -> None:
    broker = Broker(AppConfig(database_url=database_url))
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/many")
        await rest.create_topic()
        await rest.create_subscription()
        ids = await rest.publish(*map(str, range(60)))
        received = await rest.pull(max_messages=60)
        await asyncio.gather(*(rest.acknowledge([each]) for each in received))
        assert {(await ended(rest, id_))["state"] for id_ in ids[::7]} == {"ACKNOWLEDGED"}
        with psycopg.connect(database_url) as admin:
            row = admin.execute("SELECT count(*), sum(length(entries)) FROM delivery_records").fetchone()
        assert row is not None
        rows, size = row
        assert rows <= 20
        assert size <= 60 * 20
