"""Filters on fields of a JSON body, an extension, wherever a filter is taken (A3)."""

import json
from typing import Any

import pytest

from tests.features.inspect.test_inspection import tailing
from tests.fixtures.broker import Json, Rest, message, text

LARGE = "body.order.total > 100"


def order(total: Any, **attributes: str) -> Json:
    return message(json.dumps({"order": {"total": total}}), attributes)


def totals(messages: list[Json]) -> list[Any]:
    return [json.loads(text(m))["order"]["total"] for m in messages]


async def test_a_filter_on_the_body_decides_what_is_delivered_and_what_is_told_of_it(rest: Rest) -> None:
    await rest.create_topic()
    created = await rest.create_subscription(filter=LARGE)
    assert created["filter"] == LARGE
    ids = await rest.publish(order(99), order(101), "no JSON", order("101"), order(1e6))
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert position["undeliveredMessages"] == 2
    reported = await rest.ok("GET", f"{rest.topic()}/messages/{ids[4]}")
    assert "1 undelivered message of its shard precedes it" in reported["subscriptions"][0]["verdict"]
    lag = await rest.ok("GET", f"{rest.project}/lag?fresh=true")
    assert lag["subscriptions"][0]["undeliveredMessages"] == 2
    waiting = await rest.ok("GET", f"{rest.subscription()}/messages", params={"filter": "body.order.total < 1000"})
    assert totals(waiting["messages"]) == [101]
    assert totals(await rest.drain()) == [101, 1e6]
    reports = [await rest.ok("GET", f"{rest.topic()}/messages/{id_}") for id_ in ids]
    states = [report["subscriptions"][0]["state"] for report in reports]
    assert states == ["FILTERED", "ACKNOWLEDGED", "FILTERED", "FILTERED", "ACKNOWLEDGED"]


async def test_a_filter_on_the_body_is_tried_and_chooses_in_lists_and_tails(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter="attributes:vip OR " + LARGE)
    either = order(500, vip=""), order(5, vip=""), order(500), order(5)
    ids = await rest.publish(*either)
    tried = await rest.ok("POST", f"{rest.topic()}:testFilter", {"filter": LARGE, "includeData": True})
    assert (totals(tried["matchedMessages"]), tried["scannedMessageCount"]) == ([500, 500], 4)
    both = await rest.ok("POST", f"{rest.subscription()}:testFilter", {"filter": "NOT body.order.total = 500"})
    assert [m["messageId"] for m in both["matchedMessages"]] == [ids[1]]
    for turn in ("oldest", "newest"):
        listed = await rest.ok("GET", f"{rest.topic()}/messages", params={"filter": LARGE, "order": turn})
        assert totals(listed["messages"]) == [500, 500]
    async with tailing(rest, filter=LARGE) as tail:
        await rest.publish(*either)
        assert totals([(await tail.next())[1] for _ in range(2)]) == [500, 500]


async def test_what_a_snapshot_or_time_brings_again_goes_through_it_too(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.create_subscription("all")
    await rest.create_subscription(filter=LARGE, retainAckedMessages=True)
    await rest.publish(order(1), order(101), order(102))
    assert len(await rest.pull("all", max_messages=2)) == 2  # out, so a snapshot has them
    snapshot = f"{rest.project}/snapshots/snap"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription("all")})
    assert totals(await rest.drain()) == [101, 102]
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": snapshot})
    assert totals(await rest.drain()) == [101, 102]
    sought = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    assert sought["replayedMessages"] == 2
    assert totals(await rest.drain()) == [101, 102]


@pytest.mark.parametrize(
    ("filter_text", "place"),
    [
        ("body.total > '5'", 14), ("body.total > 1e400", 14), ("body..total = 1", 6), ("body = 1", 6),
        ("body.a[0] = 1", 7), ("body.a == 1", 9), ("body.a = nil", 10), ("attributes.a > 5", 14),
    ],
)  # fmt: skip
async def test_a_filter_that_cannot_be_read_is_refused_with_its_place(
    rest: Rest, filter_text: str, place: int
) -> None:
    await rest.create_topic()
    body = {"topic": rest.topic(), "filter": filter_text}
    code, complaint = await rest.error("PUT", rest.subscription(), body)
    assert (code, f"at column {place}: " in complaint) == ("INVALID_ARGUMENT", True), complaint
