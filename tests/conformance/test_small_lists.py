"""Previews of messages, parts of a body, searches, histograms and lists of operations."""

import base64
from typing import Any

import pytest

from tests.features.inspect.test_tails import reading
from tests.fixtures.broker import Json, Rest, eventually, message

BODY = "0123456789" * 30
MISSING = "1000000000999999"


@pytest.fixture
async def published(rest: Rest) -> str:
    """A topic with a subscription and a message of 300 bytes; its id."""
    await rest.create_topic()
    await rest.create_subscription()
    [message_id] = await rest.publish(message(BODY, {"a": "b"}))
    return message_id


def _data(one: Json) -> str:
    return base64.b64decode(one["data"]).decode()


@pytest.mark.parametrize("path", ["topics/topic", "subscriptions/sub"])
async def test_lists_of_messages_have_the_beginning_of_each_body_and_its_size(
    rest: Rest, published: str, path: str
) -> None:
    for preview, expected in (("", BODY), ("256", BODY[:256]), ("3", BODY[:3]), ("1000", BODY)):
        query = {"previewBytes": preview} if preview else {}
        [found] = (await rest.ok("GET", f"{rest.project}/{path}/messages", params=query))["messages"]
        one = found.get("message", found)
        assert (one["messageId"], _data(one)) == (published, expected)
        assert found.get("dataSize", one.get("dataSize", len(expected))) == len(BODY)
    [found] = (await rest.ok("GET", f"{rest.project}/{path}/messages", params={"previewBytes": "0"}))["messages"]
    assert found.get("message", found).get("data", "") == ""
    for refused in ("-1", "x"):
        code, said = await rest.error("GET", f"{rest.project}/{path}/messages?previewBytes={refused}")
        assert (code, refused in said) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    ("asked", "status", "expected", "content_range"),
    [
        (None, 200, BODY, None),
        ("bytes=0-9", 206, BODY[:10], "bytes 0-9/300"),
        ("bytes=290-", 206, BODY[290:], "bytes 290-299/300"),
        ("bytes=-5", 206, BODY[-5:], "bytes 295-299/300"),
        ("bytes=300-", 416, "", "bytes */300"),
        ("bytes=9-0", 200, BODY, None),
    ],
)
async def test_a_body_is_read_as_bytes_or_as_a_range(
    rest: Rest, published: str, asked: str | None, status: int, expected: str, content_range: str | None
) -> None:
    headers = {} if asked is None else {"Range": asked}
    answer = await rest.call("GET", f"{rest.topic()}/messages/{published}:data", headers=headers)
    assert (answer.status_code, answer.text) == (status, expected)
    assert answer.headers.get("content-range") == content_range
    assert answer.headers["content-type"] == "application/octet-stream"


async def test_the_body_of_a_message_that_is_not_there_is_not_found(rest: Rest, published: str) -> None:
    assert (await rest.error("GET", f"{rest.topic()}/messages/{MISSING}:data"))[0] == "NOT_FOUND"
    assert (await rest.error("GET", f"{rest.topic('none')}/messages/{published}:data"))[0] == "NOT_FOUND"


async def test_a_search_in_a_topic_says_how_far_it_has_read(rest: Rest, published: str) -> None:
    await rest.publish(*(f"order {number}" for number in range(5)))
    answer = await rest.ok("GET", f"{rest.topic()}/messages", params={"contains": "order 3"})
    assert [_data(one.get("message", one)) for one in answer["messages"]] == ["order 3"]
    assert answer["scannedMessageCount"] == 6
    paged = await rest.ok("GET", f"{rest.topic()}/messages", params={"contains": "order", "pageSize": 1})
    assert paged["progress"]["totalMessagesEstimate"] >= paged["progress"]["searchedMessagesEstimate"] >= 1
    assert paged["progress"]["searchedTime"].endswith("Z")
    code, said = await rest.error("GET", f"{rest.topic()}/messages", params={"contains": "x" * 1001})
    assert (code, "contains" in said) == ("INVALID_ARGUMENT", True)


async def test_a_tail_begins_at_a_time_and_goes_on_behind_an_event(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.publish("one", "two")
    async with reading(rest, startTime="2000-01-01T00:00:00Z", previewBytes="2") as events:
        (first, one), (_, two) = [await events.with_id() for _ in range(2)]
        assert (one, two) == ("on", "tw")
    await rest.publish("three")
    async with reading(rest, first) as events:
        assert [(await events.with_id())[1] for _ in range(2)] == ["two", "three"]
    for refused in ({"params": {"startTime": "yesterday"}}, {"headers": {"Last-Event-ID": "x"}}):
        assert (await rest.error("GET", f"{rest.topic()}:tail", **refused))[0] == "INVALID_ARGUMENT"


async def test_a_histogram_counts_the_messages_and_bytes_of_a_log(rest: Rest, published: str) -> None:
    await rest.publish("1234567890")
    answer = await rest.ok("GET", f"{rest.topic()}:histogram", params={"buckets": 4})
    assert (len(answer["buckets"]), answer["messageCount"]) == (4, 2)
    assert sum(bucket["messageCount"] for bucket in answer["buckets"]) == 2
    assert answer["byteCount"] == sum(bucket["byteCount"] for bucket in answer["buckets"]) >= 310
    assert (await rest.error("GET", f"{rest.topic('none')}:histogram"))[0] == "NOT_FOUND"


@pytest.mark.parametrize("query", ["buckets=0", "buckets=501", "buckets=x", "startTime=yesterday"])
async def test_a_histogram_that_cannot_be_is_refused(rest: Rest, published: str, query: str) -> None:
    code, said = await rest.error("GET", f"{rest.topic()}:histogram?{query}")
    assert (code, query.partition("=")[0] in said) == ("INVALID_ARGUMENT", True)


async def test_operations_are_listed_in_both_orders_and_by_what_they_are(rest: Rest, published: str) -> None:
    await rest.create_topic("copy")
    started = [
        (await rest.ok("POST", f"{rest.topic()}:copy", {"targetTopic": rest.topic("copy")}))["name"]
        for _ in range(3)
    ]

    async def names(**parameters: Any) -> list[str]:
        found: list[str] = []
        while True:
            answer = await rest.ok("GET", f"{rest.project}/operations", params=parameters)
            found += [each["name"] for each in answer.get("operations", [])]
            if "nextPageToken" not in answer:
                return found
            parameters["pageToken"] = answer["nextPageToken"]

    async def have_ended() -> bool:
        return await names(filter="state=SUCCEEDED") == started

    await eventually(have_ended)
    assert await names() == await names(orderBy="createTime", pageSize=2) == started
    assert await names(orderBy="createTime desc", pageSize=2) == started[::-1]
    assert await names(filter=f'verb=copy AND target="{rest.topic()}"') == started
    assert await names(filter="verb=redrive") == []
    operation = await rest.ok("GET", started[0])
    assert operation["metadata"]["request"] == {"targetTopic": rest.topic("copy")}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"orderBy": "name"}, "orderBy must be createTime"),
        ({"filter": "state=GONE"}, "state is one of"),
        ({"filter": "name=x"}, "name cannot be compared"),
    ],
)
async def test_a_list_of_operations_that_cannot_be_is_refused(rest: Rest, parameters: Any, said: str) -> None:
    code, message_ = await rest.error("GET", f"{rest.project}/operations", params=parameters)
    assert (code, said in message_) == ("INVALID_ARGUMENT", True)
