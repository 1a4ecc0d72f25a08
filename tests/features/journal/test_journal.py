"""The journal of a subscription tells what happened to a message, and what it does not tell did not happen (F3)."""

from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes

ALL = {"journal": {"mode": "ALL"}}


async def journaled(rest: Rest, **fields: Any) -> None:
    await rest.create_topic()
    await rest.create_subscription(extensions=fields.pop("extensions", ALL), **fields)


async def story(rest: Rest, message_id: str, name: str = "sub") -> Json:
    return await rest.ok("GET", f"{rest.subscription(name)}/messages/{message_id}")


async def events(rest: Rest, message_id: str, name: str = "sub") -> list[tuple[str, int]]:
    """What happened to a message, with the number of the attempt."""
    found = await story(rest, message_id, name)
    return [(entry["event"], entry.get("deliveryAttempt", 0)) for entry in found["timeline"]]


async def test_each_step_of_a_message_is_told_in_its_order(rest: Rest) -> None:
    await journaled(rest)
    [id_, other] = await rest.publish("1", "2")
    received = await rest.pull()
    await rest.modify_ack_deadline(received, 30)
    await rest.modify_ack_deadline(received[:1], 0)
    again = await rest.pull()
    await rest.acknowledge([*again, *received[1:]])
    assert await events(rest, id_) == [
        ("HANDED_OUT", 1),
        ("EXTENDED", 1),
        ("NACKED", 1),
        ("HANDED_OUT", 2),
        ("ACKED", 2),
    ]
    assert await events(rest, other) == [("HANDED_OUT", 1), ("EXTENDED", 1), ("ACKED", 1)]
    found = await story(rest, id_)
    assert (found["state"], found["messageId"]) == ("ACKNOWLEDGED", id_)
    assert found["verdict"] == (
        f"It was acked at {found['timeline'][-1]['time']} by REST client 127.0.0.1 (attempt 2)."
    )
    assert found["timeline"][0]["client"] == "127.0.0.1"
    assert found["timeline"][2]["answer"] == "nack"


@pytest.mark.parametrize("kind", [{}, {"enableExactlyOnceDelivery": True}, {"enableMessageOrdering": True}])
async def test_what_changes_nothing_is_not_told(rest: Rest, kind: Json) -> None:
    await journaled(rest, **kind)
    [id_] = await rest.publish({"orderingKey": "k"} | message("1"))
    received = await rest.pull()
    await rest.modify_ack_deadline(received, 0)
    again = await rest.pull()
    stale = {"ackIds": [received[0]["ackId"]]}  # of what was nacked; refused with exactly-once delivery
    await rest.call("POST", f"{rest.subscription()}:acknowledge", stale)
    await rest.acknowledge(again)
    await rest.acknowledge(again)
    assert await events(rest, id_) == [("HANDED_OUT", 1), ("NACKED", 1), ("HANDED_OUT", 2), ("ACKED", 2)]


async def test_a_nack_of_a_key_takes_back_what_is_behind_it(rest: Rest) -> None:
    await journaled(rest, enableMessageOrdering=True)
    ids = await rest.publish(*({"orderingKey": "k"} | message(str(n)) for n in range(3)))
    received = await rest.pull()
    await rest.acknowledge(received[:1])
    await rest.modify_ack_deadline(received[1:2], 0)
    assert [await events(rest, id_) for id_ in ids] == [
        [("HANDED_OUT", 1), ("ACKED", 1)],
        [("HANDED_OUT", 1), ("NACKED", 1)],
        [("HANDED_OUT", 1), ("NACKED", 1)],
    ]


async def test_a_seek_is_told_without_a_journal_too(rest: Rest) -> None:
    await journaled(rest, extensions={}, retainAckedMessages=True)
    [acked, out, waits] = await rest.publish("1", "2", "3")
    received = await rest.pull(max_messages=2)
    await rest.acknowledge(received[:1])
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2100-01-01T00:00:00Z"})
    assert [(await story(rest, id_))["state"] for id_ in (acked, out, waits)] == [
        "ACKNOWLEDGED",
        "SKIPPED",
        "SKIPPED",
    ]
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2000-01-01T00:00:00Z"})
    assert [await events(rest, id_) for id_ in (acked, out)] == [
        [("HANDED_OUT", 1), ("ACKED", 1), ("REPLAYED", 0)],
        [("SKIPPED", 0), ("REPLAYED", 0)],
    ]


async def test_failures_alone_can_be_told(rest: Rest) -> None:
    await journaled(rest, extensions={"journal": {"mode": "FAILURES"}})
    [good, bad] = await rest.publish("1", "2")
    received = await rest.pull()
    await rest.acknowledge(received[:1])
    await rest.modify_ack_deadline(received[1:], 0)
    await rest.acknowledge(await rest.pull())
    assert await events(rest, good) == [("HANDED_OUT", 1), ("ACKED", 1)]  # of the record that all have
    assert await events(rest, bad) == [("NACKED", 1), ("HANDED_OUT", 2), ("ACKED", 2)]


async def test_of_a_share_each_message_has_its_whole_story_or_none(rest: Rest) -> None:
    await journaled(rest, extensions={"journal": {"mode": "ALL", "sample": 0.5}})
    ids = await rest.publish(*map(str, range(100)))
    received = await rest.pull(max_messages=100)
    await rest.modify_ack_deadline(received, 60)
    await rest.acknowledge(received)
    stories = [await events(rest, id_) for id_ in ids]
    whole = [("HANDED_OUT", 1), ("EXTENDED", 1), ("ACKED", 1)]
    recorded = [("HANDED_OUT", 1), ("ACKED", 1)]  # as of every message
    assert all(each in (whole, recorded) for each in stories)
    assert 40 <= stories.count(whole) <= 60


async def test_what_an_endpoint_answered_is_told(rest: Rest, push_sink: PushSink) -> None:
    await rest.create_topic()
    await Pushes(rest, push_sink).subscribe("/status/500", "/status/204", extensions=ALL)
    [id_] = await rest.publish("1")

    async def acked() -> bool:
        return (await story(rest, id_))["state"] == "ACKNOWLEDGED"

    await eventually(acked)
    found = await story(rest, id_)
    assert await events(rest, id_) == [("HANDED_OUT", 1), ("NACKED", 1), ("HANDED_OUT", 2), ("ACKED", 2)]
    assert [(e["client"], e.get("answer", "").partition(" in ")[0]) for e in found["timeline"][1::2]] == [
        ("push", "push 500"),
        ("push", "204"),
    ]


@pytest.mark.parametrize(
    ("journal", "named"),
    [
        ({"mode": "SOME"}, "mode"),
        ({}, "mode"),
        ({"mode": "ALL", "sample": 0}, "sample"),
        ({"mode": "ALL", "sample": 1.5}, "sample"),
        ({"mode": "ALL", "retention": "59s"}, "retention"),
        ({"mode": "ALL", "retention": "2678401s"}, "retention"),
        ({"mode": "ALL", "other": 1}, "other"),
    ],
)
async def test_a_journal_that_cannot_be_is_refused_by_name(rest: Rest, journal: Json, named: str) -> None:
    await rest.create_topic()
    body = {"topic": rest.topic(), "extensions": {"journal": journal}}
    status, text = await rest.error("PUT", rest.subscription(), body)
    assert (status, named in text) == ("INVALID_ARGUMENT", True)


async def test_a_journal_is_given_back_and_can_be_changed(rest: Rest) -> None:
    await journaled(rest)
    shown = {"journal": {"mode": "ALL", "sample": 1.0, "retention": "604800s"}}
    assert (await rest.ok("GET", rest.subscription()))["extensions"] == shown
    body = {"subscription": {"name": rest.subscription(), "extensions": {}}, "updateMask": "extensions"}
    await rest.ok("PATCH", rest.subscription(), body)
    [id_] = await rest.publish("1")
    received = await rest.pull()
    await rest.modify_ack_deadline(received, 60)
    await rest.acknowledge(received)
    assert await events(rest, id_) == [("HANDED_OUT", 1), ("ACKED", 1)]


async def test_a_dead_letter_is_told_with_its_reason_without_a_journal_too(rest: Rest) -> None:
    await rest.create_topic("dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 5}
    await journaled(rest, extensions={}, deadLetterPolicy=policy)
    [id_] = await rest.publish("1")
    reject = {"ackIds": [m["ackId"] for m in await rest.pull()]}
    await rest.ok("POST", f"{rest.subscription()}:reject", reject)

    async def attribution() -> Json:
        return (await story(rest, id_))["timeline"]

    [entry] = await eventually(attribution)
    assert (entry["event"], entry["deliveryAttempt"], entry["answer"]) == ("DEAD_LETTERED", 1, "reject")
