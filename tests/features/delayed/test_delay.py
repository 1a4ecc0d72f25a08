"""Messages that are to come later, over REST and gRPC, an extension of topics (J1)."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.grpc import channel_to
from tests.fixtures.in_process import own_broker

ON = {"delay": True}


pytestmark = pytest.mark.own_broker(allow_reset=True, min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


def delayed(data: str, delay: str = "3600s", **fields: Any) -> Json:
    return message(data, {"broker-delay": delay}, **fields)


async def arrived(rest: Rest, name: str = "sub") -> Json:
    async def one() -> list[Json]:
        return await rest.pull(name, 1)

    [received] = await eventually(one)
    await rest.acknowledge([received], name)
    return received


async def waiting(rest: Rest, topic: str = "topic") -> list[str]:
    listed = await rest.ok("GET", f"{rest.topic(topic)}/scheduled")
    return [each["messageId"] for each in listed.get("scheduledMessages", [])]


async def test_what_is_to_come_later_comes_later_under_the_id_that_publish_gave(rest: Rest) -> None:
    assert (await rest.create_topic(extensions=ON))["extensions"] == ON
    await rest.create_subscription()
    at = datetime.now(UTC) + timedelta(seconds=0.6)
    by_time = message("by time", {"broker-deliver-at": format_timestamp(at), "a": "b"})
    ids = await rest.publish(delayed("later", "0.3s"), "at once", by_time, delayed("long ago", "-5s"))
    assert len(set(ids)) == 4
    first = await rest.drain()
    assert {m["message"]["messageId"]: text(m) for m in first} == {ids[1]: "at once", ids[3]: "long ago"}
    assert await waiting(rest) == [ids[0], ids[2]]
    later, last = await arrived(rest), await arrived(rest)
    assert [(text(m), m["message"]["messageId"]) for m in (later, last)] == [("later", ids[0]), ("by time", ids[2])]
    assert last["message"]["attributes"]["a"] == "b"
    assert datetime.fromisoformat(last["message"]["publishTime"]) >= at.replace(
        microsecond=at.microsecond // 1000 * 1000
    )
    assert await waiting(rest) == []
    # Whoever looks knows it by this id.
    reported = await rest.ok("GET", f"{rest.topic()}/messages/{ids[2]}")
    assert (reported["message"]["messageId"], reported["subscriptions"][0]["state"]) == (ids[2], "ACKNOWLEDGED")
    reported = await rest.ok("GET", f"{rest.subscription()}/messages/{ids[2]}")
    assert reported["messageId"] == ids[2]
    for query in ({"order": "oldest"}, {}):
        listed = await rest.ok("GET", f"{rest.topic()}/messages", params=query)
        assert {m["messageId"] for m in listed["messages"]} == set(ids)


async def test_what_waits_is_listed_shown_put_off_and_cancelled(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    ids = [id_ for n in range(5) for id_ in await rest.publish(delayed(f"m{n}", f"{3600 - n}s", orderingKey="k"))]
    page = await rest.ok("GET", f"{rest.topic()}/scheduled", params={"pageSize": 3})
    assert [m["messageId"] for m in page["scheduledMessages"]] == [ids[4], ids[3], ids[2]]
    assert "data" not in page["scheduledMessages"][0]
    rest_of_it = {"pageSize": 3, "pageToken": page["nextPageToken"]}
    page = await rest.ok("GET", f"{rest.topic()}/scheduled", params=rest_of_it)
    assert ([m["messageId"] for m in page["scheduledMessages"]], "nextPageToken" in page) == (
        [ids[1], ids[0]],
        False,
    )
    shown = await rest.ok("GET", f"{rest.topic()}/scheduled/{ids[0]}")
    assert (text({"message": shown}), shown["orderingKey"], shown["attributes"]) == (
        "m0", "k", {"broker-delay": "3600s"},
    )  # fmt: skip
    assert shown["createTime"] < shown["deliverTime"]
    assert await rest.ok("DELETE", f"{rest.topic()}/scheduled/{ids[0]}") == {}
    assert (await rest.error("DELETE", f"{rest.topic()}/scheduled/{ids[0]}"))[0] == "NOT_FOUND"
    soon = format_timestamp(datetime.now(UTC) + timedelta(seconds=0.2))
    moved = await rest.ok("PATCH", f"{rest.topic()}/scheduled/{ids[1]}", {"deliverTime": soon})
    assert moved["deliverTime"] == soon
    received = await arrived(rest)
    assert (text(received), received["message"]["messageId"]) == ("m1", ids[1])
    for method, body in (("DELETE", None), ("PATCH", {"deliverTime": soon}), ("GET", None)):
        code, why = await rest.error(method, f"{rest.topic()}/scheduled/{ids[1]}", body)
        assert (code, ids[1] in why) == ("FAILED_PRECONDITION", True)
    far = format_timestamp(datetime.now(UTC) + timedelta(days=32))
    bodies: list[Json] = [{"deliverTime": far}, {"deliverTime": "soon"}, {}, {"data": "x"}]
    for body in bodies:
        assert (await rest.error("PATCH", f"{rest.topic()}/scheduled/{ids[2]}", body))[0] == "INVALID_ARGUMENT"
    for unknown in ("1", "x", ids[2][:-1] + "99"):
        assert (await rest.error("GET", f"{rest.topic()}/scheduled/{unknown}"))[0] in (
            "INVALID_ARGUMENT",
            "NOT_FOUND",
        )
    assert await waiting(rest) == [ids[4], ids[3], ids[2]]
    assert await rest.drain() == []


async def test_a_time_that_cannot_be_read_is_refused_and_nothing_of_the_request_is_stored(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    for bad in ("soon", "2678500s"):
        body = {"messages": [message("at once"), delayed("later"), delayed("bad", bad)]}
        code, why = await rest.error("POST", f"{rest.topic()}:publish", body)
        assert (code, "messages[2].attributes.broker-delay" in why, bad in why) == ("INVALID_ARGUMENT", True, True)
    assert (await waiting(rest), await rest.drain()) == ([], [])


async def test_no_more_wait_than_may_and_what_comes_at_once_is_taken(database_url: str) -> None:
    async with own_broker(database_url, max_scheduled_messages=3) as (_, rest):
        await rest.create_topic(extensions=ON)
        await rest.create_subscription()
        ids = await rest.publish(delayed("a"), delayed("b"))
        body = {"messages": [delayed("c"), message("d"), delayed("e")]}
        code, why = await rest.error("POST", f"{rest.topic()}:publish", body)
        assert (code, "max_scheduled_messages=3" in why) == ("RESOURCE_EXHAUSTED", True), why
        assert (await waiting(rest), await rest.drain()) == ([*ids], [])
        await rest.publish("at once")
        ids += await rest.publish(delayed("c"))
        assert (await rest.error("POST", f"{rest.topic()}:publish", {"messages": [delayed("f")]}))[0] == code
        lines = (await rest.client.get("/metrics")).text.splitlines()
        assert "pubsub_scheduled_messages 3.0" in lines
        assert len(await waiting(rest)) == 3


async def test_on_other_topics_these_are_attributes_like_any(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    [id_] = await rest.publish(message("m", {"broker-delay": "soon", "broker-deliver-at": "x"}))
    [received] = await rest.drain()
    assert received["message"]["messageId"] == id_
    assert received["message"]["attributes"] == {"broker-delay": "soon", "broker-deliver-at": "x"}


async def test_it_is_switched_on_and_off_and_unknown_extensions_are_refused_by_name(rest: Rest) -> None:
    code, why = await rest.error("PUT", rest.topic(), {"extensions": {"colour": True}})
    assert (code, "colour" in why) == ("INVALID_ARGUMENT", True)
    assert (await rest.error("PUT", rest.topic(), {"extensions": {"delay": "often"}}))[0] == "INVALID_ARGUMENT"
    assert "extensions" not in await rest.create_topic(labels={"a": "b"})
    changes: list[tuple[str, Json, Json | None]] = [
        ("extensions", {"extensions": ON}, ON), ("labels", {"labels": {}}, ON), ("extensions", {}, None),
    ]  # fmt: skip
    for mask, fields, expected in changes:
        changed = await rest.ok("PATCH", rest.topic(), {"topic": fields, "updateMask": mask})
        assert changed.get("extensions") == expected
    for path, why_not in (
        ("delay.soon", "'extensions.delay' can only be named as a whole"),
        ("colour", "'extensions' has: "),
    ):
        body = {"topic": {"extensions": ON}, "updateMask": f"extensions.{path}"}
        code, why = await rest.error("PATCH", rest.topic(), body)
        assert (code, why_not in why) == ("INVALID_ARGUMENT", True), why


async def test_one_is_switched_on_and_off_by_its_name_and_the_others_stay(rest: Rest) -> None:
    repeats = {"deduplication": {"window": "600s"}}
    await rest.create_topic(extensions=ON, labels={"a": "b"})
    changes: list[tuple[str, Json, Json]] = [
        ("extensions.deduplication,labels", repeats, {**ON, **repeats}),
        ("extensions.shards", {"shards": 2}, {**ON, **repeats, "shards": 2}),
        ("extensions.delay", {}, {**repeats, "shards": 2}),
        ("extensions.delay,extensions", ON, {**ON, "shards": 2}),
    ]
    for mask, wanted, expected in changes:
        change = {"topic": {"extensions": wanted}, "updateMask": mask}
        changed = await rest.ok("PATCH", rest.topic(), change)
        assert (changed["extensions"], "labels" in changed) == (expected, False)


async def test_what_waits_when_it_is_switched_off_still_comes(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    [id_] = await rest.publish(delayed("m", "0.3s"))
    await rest.ok("PATCH", rest.topic(), {"topic": {}, "updateMask": "extensions"})
    assert (await arrived(rest))["message"]["messageId"] == id_


async def test_clients_of_grpc_that_do_not_know_it_keep_it(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)

    def change() -> None:
        with channel_to(str(rest.client.base_url).rstrip("/")) as channel:
            client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
            topic = client.get_topic(topic=rest.topic())
            topic.labels["a"] = "b"
            client.update_topic(topic=topic, update_mask={"paths": ["labels", "extensions"]})

    await asyncio.to_thread(change)
    changed = await rest.ok("GET", rest.topic())
    assert (changed["extensions"], changed["labels"]) == (ON, {"a": "b"})


async def test_a_dead_letter_comes_at_once_and_its_message_comes_back_by_the_id_that_it_was_published_with(
    rest: Rest,
) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_topic("dead", extensions=ON)
    await rest.create_subscription("dead-sub", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy)
    [id_] = await rest.publish(delayed("m", "0.2s"))

    async def given_up() -> bool:
        if received := await rest.pull():
            await rest.modify_ack_deadline(received, 0)
        position = await rest.ok("GET", f"{rest.subscription('dead-sub')}/snapshot")
        return bool(position["undeliveredMessages"])

    await eventually(given_up)
    assert await waiting(rest, "dead") == []
    dead_letters = await rest.ok("GET", f"{rest.subscription('dead-sub')}/messages")
    assert dead_letters["messages"][0]["message"]["attributes"]["broker-source-message-id"] == id_
    listed = await rest.ok("GET", f"{rest.subscription()}/deadLetters")
    assert [dead_letter["sourceMessageId"] for dead_letter in listed["deadLetters"]] == [id_]
    grouped = await rest.ok("GET", f"{rest.subscription()}/deadLetters", params={"groupBy": "reason"})
    assert [group["firstMessageId"] for group in grouped["groups"]] == [id_]
    started = await rest.ok("POST", f"{rest.subscription()}:redrive", {"messageIds": [id_]})
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert ended["response"]["redriven"] == "1"
    assert (await arrived(rest))["message"]["messageId"] == id_


async def test_edits_and_discards_of_dead_letters_name_a_message_by_the_id_that_publish_gave(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy)
    ids = await rest.publish(delayed("a", "0.1s"), delayed("b", "0.1s"), delayed("c", "0.1s"))

    async def given_up() -> bool:
        if received := await rest.pull():
            await rest.modify_ack_deadline(received, 0)
        listed = await rest.ok("GET", f"{rest.subscription()}/deadLetters")
        return {dead_letter["sourceMessageId"] for dead_letter in listed["deadLetters"]} == {*ids}

    await eventually(given_up)
    edit = {"messageId": ids[0], "setAttributes": {"mended": "yes"}}
    edited = await rest.ok("POST", f"{rest.subscription()}:editDeadLetter", edit)
    assert edited["replaces"] == [ids[0]]
    for choice, id_ in (({"messageIds": [ids[1]]}, ids[1]), ({"filter": "attributes:broker-delay"}, ids[2])):
        done = await rest.ok("POST", f"{rest.subscription()}:discard", choice)
        assert {"messageId": id_, "outcome": "discarded"} in done["results"]
        assert {each["messageId"] for each in done["results"]} <= {*ids}
    started = await rest.ok("POST", f"{rest.subscription()}:redrive")
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert "skipped" not in ended["metadata"], "none is left to come back"


async def test_a_transform_of_a_subscription_keeps_the_id(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription(messageTransforms=[{"fields": {"set": {"attributes.seen": "yes"}}}])
    [id_] = await rest.publish(delayed("later", "0.1s"))
    received = await arrived(rest)
    assert (received["message"]["messageId"], received["message"]["attributes"]["seen"]) == (id_, "yes")


async def test_ids_are_understood_however_many_shards_there_were(rest: Rest, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("SELECT setval(pg_get_serial_sequence('shards', 'shard_id'), 20000)")
    await rest.create_topic(extensions=ON)
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy)
    now_id, other_id, later_id = await rest.publish("now", "other", delayed("later"))
    assert now_id.startswith("20001")
    for place in (rest.topic(), rest.project):
        found = await rest.ok("GET", f"{place}/messages/{now_id}")
        assert found["message"]["messageId"] == now_id
    assert (await rest.ok("GET", f"{rest.subscription()}/messages/{now_id}"))["state"] == "WAITING"
    await rest.ok("DELETE", f"{rest.topic()}/scheduled/{later_id}")
    assert await waiting(rest) == []

    async def given_up() -> bool:
        if received := await rest.pull():
            await rest.modify_ack_deadline(received, 0)
        return len((await rest.ok("GET", f"{rest.subscription()}/deadLetters")).get("deadLetters", [])) == 2

    await eventually(given_up)
    done = await rest.ok("POST", f"{rest.subscription()}:discard", {"messageIds": [other_id]})
    assert done["results"] == [{"messageId": other_id, "outcome": "discarded"}]
    edit = {"messageId": now_id, "setAttributes": {"mended": "yes"}}
    assert (await rest.ok("POST", f"{rest.subscription()}:editDeadLetter", edit))["replaces"] == [now_id]
    started = await rest.ok("POST", f"{rest.subscription()}:redrive", {"messageIds": [other_id]})
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert ended["response"]["redriven"] == "1"  # whoever names it gets it back
    assert other_id in [each["message"]["messageId"] for each in await rest.drain()]


async def test_what_became_of_a_message_that_waits_says_until_when_and_where_it_is_found(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    [id_] = await rest.publish(delayed("later", orderingKey="k"))
    shown = await rest.ok("GET", f"{rest.topic()}/scheduled/{id_}")
    for place in (f"{rest.topic()}/messages/{id_}", f"projects/p/messages/{id_}"):
        reported = await rest.ok("GET", place)
        message_fields = ("messageId", "data", "attributes", "orderingKey")
        assert reported["message"] == {name: shown[name] for name in message_fields}
        assert reported["deliverTime"] == shown["deliverTime"]
        [report] = reported["subscriptions"]
        assert report["state"] == "WAITING"
        for verdict in (reported["verdict"], report["verdict"]):
            assert shown["deliverTime"] in verdict
            assert f"/v1/{rest.topic()}/scheduled/{id_}" in verdict
    reported = await rest.ok("GET", f"{rest.subscription()}/messages/{id_}")
    assert (reported["state"], reported["messageId"], reported["timeline"]) == ("WAITING", id_, [])
    await rest.ok("DELETE", f"{rest.topic()}/scheduled/{id_}")
    reported = await rest.ok("GET", f"{rest.topic()}/messages/{id_}")
    assert reported["message"] == {"messageId": id_}
    assert reported["verdict"] == f"It was cancelled at {reported['cancelTime']}."
    assert [(each["state"], each["verdict"]) for each in reported["subscriptions"]] == [
        ("CANCELLED", f"It was cancelled at {reported['cancelTime']}, before its time came.")
    ]


async def test_a_purge_and_a_reset_of_the_project_take_what_waits_with_them(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    [id_] = await rest.publish(delayed("m", "1s"))
    await rest.ok("POST", f"{rest.topic()}:purge")
    assert await waiting(rest) == []
    assert (await rest.error("DELETE", f"{rest.topic()}/scheduled/{id_}"))[0] == "NOT_FOUND"
    [later] = await rest.publish(delayed("m", "0.1s"))
    assert (await arrived(rest))["message"]["messageId"] == later != id_
    [lost] = await rest.publish(delayed("m"))
    await rest.ok("POST", f"{rest.project}:reset")
    await rest.create_topic(extensions=ON)
    assert await waiting(rest) == []
    assert (await rest.error("GET", f"{rest.topic()}/scheduled/{lost}"))[0] == "NOT_FOUND"


async def _held_by(rest: Rest, held: str) -> set[str]:
    """Where a message is told for which other one it waits."""
    listed = await rest.ok("GET", f"{rest.subscription()}/messages", params={"state": "blocked"})
    of_topic = await rest.ok("GET", f"{rest.topic()}/messages/{held}")
    of_subscription = await rest.ok("GET", f"{rest.subscription()}/messages/{held}")
    [lag] = (await rest.ok("GET", f"{rest.project}/lag?fresh=true"))["subscriptions"]
    reported = [*listed["messages"], *of_topic["subscriptions"], of_subscription]
    return {each["blockedByMessageId"] for each in reported} | {lag["blockedKey"]["messageId"]}


async def test_whoever_looks_is_told_the_id_that_publish_gave(rest: Rest) -> None:
    await rest.create_topic(extensions=ON, messageRetentionDuration="600s")
    journal = {"journal": {"mode": "ALL"}}
    await rest.create_subscription(enableMessageOrdering=True, extensions=journal, ackDeadlineSeconds=600)
    first, held = await rest.publish(*(delayed(text_, "0.1s", orderingKey="k") for text_ in "ab"))

    async def came() -> list[Json]:
        return await rest.pull("sub", 1)

    await rest.modify_ack_deadline(await eventually(came), 0)
    out = await eventually(came)
    assert [each["message"]["messageId"] for each in out] == [first]
    assert await _held_by(rest, held) == {first}
    reported = await rest.ok("GET", f"{rest.subscription()}/messages/{first}")
    assert (reported["messageId"], [entry["event"] for entry in reported["timeline"]]) == (
        first, ["HANDED_OUT", "NACKED", "HANDED_OUT"],
    )  # fmt: skip
    exported = (await rest.call("POST", f"{rest.topic()}:export", {})).text.splitlines()
    assert [json.loads(line)["messageId"] for line in exported] == [first, held]
    await rest.acknowledge(out)
    await rest.acknowledge(await rest.drain())
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2026-01-01T00:00:00Z"})
    assert [each["message"]["messageId"] for each in await rest.drain()] == [first, held]
    reported = await rest.ok("GET", f"{rest.subscription()}/messages/{first}")
    assert (reported["messageId"], reported["state"]) == (first, "ACKNOWLEDGED")
