"""Publish over REST: limits, message forms, ids and who receives, as Google's service does it (A1, B6)."""

import base64
import re
from typing import Any

import pytest
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from tests.fixtures.broker import Json, Rest, message, text

LIMIT_TEXT = "In a single publish request, all messages must have no ordering key or they must all have the same"


@pytest.fixture
async def topic(rest: Rest) -> str:
    """A topic with the subscription `sub`."""
    await rest.create_topic()
    await rest.create_subscription()
    return rest.topic()


async def refused(rest: Rest, *messages: Json) -> tuple[str, str]:
    """The error of a publish, of which nothing may have been stored."""
    error = await rest.error("POST", f"{rest.topic()}:publish", {"messages": list(messages)})
    assert await rest.pull() == []
    return error


@pytest.mark.usefixtures("topic")
async def test_a_publish_answers_one_decimal_id_per_message_in_order(rest: Rest) -> None:
    """A1: and these are the ids under which they are delivered."""
    ids = await rest.publish("a", "b", "c") + await rest.publish("d")
    assert all(re.fullmatch("[0-9]{1,19}", i) for i in ids)
    assert len(set(ids)) == 4
    assert [(m["message"]["messageId"], text(m)) for m in await rest.drain()] == list(zip(ids, "abcd", strict=True))


@pytest.mark.usefixtures("topic")
async def test_a_delivered_message_has_all_that_was_published(rest: Rest) -> None:
    """A1, A7: attributes to the letter, the ordering key, and a publish time; nothing else."""
    attributes = {"k": "v", "empty": "", "unicode": "é\u2028😀", "quote": '"\\/<>&'}
    ids = await rest.publish(message("hello", attributes, orderingKey="key"))
    (received,) = await rest.pull()
    assert set(received) == {"ackId", "message"}, "deliveryAttempt comes with a dead-letter policy only"
    published = received["message"].pop("publishTime")
    assert received["message"] == message("hello", attributes, orderingKey="key", messageId=ids[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", published), "milliseconds"


@pytest.mark.usefixtures("topic")
async def test_data_may_be_any_bytes(rest: Rest) -> None:
    """A1: each of the 256 comes back."""
    data = base64.b64encode(bytes(range(256))).decode()
    await rest.publish({"data": data})
    assert [m["message"]["data"] for m in await rest.drain()] == [data]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("+/+/", "+/+/"),
        ("-_-_", "+/+/"),
        ("YQ==", "YQ=="),
        ("YQ", "YQ=="),
        ("YQ=", "YQ=="),
        ("YWI", "YWI="),
        ("YR==", "YQ=="),
    ],
)
async def test_base64_may_be_url_safe_or_unpadded(rest: Rest, given: str, canonical: str) -> None:
    """A12: it comes back in the standard alphabet, padded."""
    await rest.publish({"data": given})
    assert [m["message"]["data"] for m in await rest.drain()] == [canonical]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("data", ["!", "a", "YQ==YQ==", "é", {}, []])
async def test_what_is_not_base64_is_refused(rest: Rest, data: Any) -> None:
    """A12: the whole request, and the message names the field."""
    status, text_ = await refused(rest, message("good"), {"data": data})
    assert status == "INVALID_ARGUMENT"
    assert "data" in text_, "it says which field"


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("body", [{"messages": []}, {}])
async def test_a_publish_of_nothing_is_refused(rest: Rest, body: Json) -> None:
    """A1: a missing list and an empty one alike."""
    status, text_ = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert status == "INVALID_ARGUMENT"
    assert text_ == (
        "The value for message_count is too small. You passed 0 in the request, but the minimum value is 1."
    )


@pytest.mark.usefixtures("topic")
async def test_a_thousand_messages_are_the_most(rest: Rest) -> None:
    """A1: 1,001 are refused as a whole, 1,000 are delivered in order."""
    status, text_ = await refused(rest, *[message("x")] * 1001)
    assert status == "INVALID_ARGUMENT"
    assert text_ == (
        "The value for message_count is too large. You passed 1001 in the request, but the maximum value is 1000."
    )
    assert len(set(await rest.publish(*[str(n) for n in range(1000)]))) == 1000
    assert [text(m) for m in await rest.drain()] == [str(n) for n in range(1000)]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    "empty", [{}, {"data": ""}, {"attributes": {}}, {"orderingKey": "k"}, {"data": None, "attributes": None}]
)
async def test_a_message_needs_data_or_an_attribute(rest: Rest, empty: Json) -> None:
    """A1: one empty message refuses the whole request."""
    assert (await refused(rest, message("good"), empty))[0] == "INVALID_ARGUMENT"


@pytest.mark.usefixtures("topic")
async def test_a_message_of_attributes_alone_has_no_data(rest: Rest) -> None:
    """A1: what is empty is left out."""
    await rest.publish({"data": "", "attributes": {"a": ""}})
    (received,) = await rest.pull()
    assert set(received["message"]) == {"attributes", "messageId", "publishTime"}


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": {f"k{n}": "v" for n in range(100)}},
        {"attributes": {"k" * 256: "v"}},
        {"attributes": {"k": "v" * 1024}},
        {"attributes": {"k": "é" * 512}},
        {"orderingKey": "k" * 1024},
    ],
    ids=["attributes", "key", "value", "value in bytes", "ordering key"],
)
async def test_limits_are_inclusive(rest: Rest, fields: Json) -> None:
    """A1: what has just the largest size is taken, and comes back whole."""
    await rest.publish(message("x", **fields))
    (received,) = await rest.pull()
    assert received["message"].items() >= fields.items()


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": {f"k{n}": "v" for n in range(101)}},
        {"attributes": {"k" * 257: "v"}},
        {"attributes": {"é" * 129: "v"}},
        {"attributes": {"": "v"}},
        {"attributes": {"k": "v" * 1025}},
        {"attributes": {"k": "é" * 513}},
        {"attributes": {"googclient": "v"}},
        {"attributes": {"GOOGclient": "v"}},
        {"orderingKey": "k" * 1025},
        {"orderingKey": "é" * 513},
        {"attributes": {"a": "nul\u0000"}},
        {"attributes": {"nul\u0000": "a"}},
        {"orderingKey": "nul\u0000"},
        {"attributes": {"a": None}},
    ],
    ids=[
        "101 attributes", "key of 257", "key of 258 bytes", "empty key", "value of 1025", "value of 1026 bytes",
        "goog", "GOOG", "ordering key of 1025", "ordering key of 1026 bytes", "U+0000 in a value",
        "U+0000 in a key", "U+0000 in an ordering key", "null value",
    ],
)  # fmt: skip
async def test_a_message_beyond_a_limit_refuses_the_request(rest: Rest, fields: Json) -> None:
    """A1: Google's emulator enforces none of these; PostgreSQL cannot hold U+0000."""
    assert (await refused(rest, message("x", **fields)))[0] == "INVALID_ARGUMENT"


@pytest.mark.usefixtures("topic")
async def test_half_a_surrogate_pair_is_refused(rest: Rest) -> None:
    """A1: it has no UTF-8 form."""
    body = rb'{"messages":[{"data":"YQ==","attributes":{"a":"\ud800"}}]}'
    headers = {"Content-Type": "application/json"}
    assert (await rest.error("POST", f"{rest.topic()}:publish", content=body, headers=headers))[
        0
    ] == "INVALID_ARGUMENT"


@pytest.mark.usefixtures("topic")
async def test_u0000_in_data_is_as_good_as_any_byte(rest: Rest) -> None:
    """A1: PostgreSQL cannot hold it in text, but data is bytes."""
    await rest.publish("a\u0000b")
    assert [text(m) for m in await rest.drain()] == ["a\u0000b"]


def request_of(topic: str, size: int) -> list[Json]:
    """Messages, mostly attributes, that make a PublishRequest of so many bytes by Google's own protobuf."""
    attributes = {f"key{n:02}": "v" * 1024 for n in range(100)}
    large = PubsubMessage(attributes=attributes)
    smaller = PublishRequest(topic=topic, messages=[*[large] * 96, PubsubMessage(data=bytes(20_000))])
    data = bytes(20_000 + size - PublishRequest.pb(smaller).ByteSize())
    assert 2**14 <= len(data) < 2**21, "lengths of the same number of bytes"
    return [*[{"attributes": attributes}] * 96, {"data": base64.b64encode(data).decode()}]


async def test_a_request_of_more_than_ten_million_bytes_is_refused(rest: Rest, topic: str) -> None:
    """A1: the size is that of the request in protobuf; Google's emulator never answers beyond 11 million."""
    assert await refused(rest, *request_of(topic, 10_000_001)) == (
        "INVALID_ARGUMENT",
        "The value for request_size is too large. You passed 10000001 in the request,"
        " but the maximum value is 10000000.",
    )
    assert len(await rest.publish(*request_of(topic, 10_000_000))) == 97


@pytest.mark.usefixtures("topic")
async def test_a_body_of_more_than_ten_mebibytes_is_refused(rest: Rest) -> None:
    """A1: in the service's words."""
    status, text_ = await refused(rest, {"data": "A" * 10_485_760})
    assert status == "INVALID_ARGUMENT"
    assert text_ == "Request payload size exceeds the limit: 10485760 bytes."


@pytest.mark.usefixtures("topic")
async def test_seven_megabytes_in_one_message_are_carried(rest: Rest) -> None:
    """A1: a message may be nearly as large as a request."""
    data = base64.b64encode(bytes(7_800_000)).decode()
    await rest.publish({"data": data})
    assert [m["message"]["data"] == data for m in await rest.drain()] == [True]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("keys", [("a", "b"), ("a", "")])
async def test_one_publish_has_one_ordering_key(rest: Rest, keys: tuple[str, str]) -> None:
    """A6: a request that mixes keys is refused as a whole."""
    status, text_ = await refused(rest, *(message("x", orderingKey=key) for key in keys))
    assert status == "FAILED_PRECONDITION"
    assert text_.startswith(LIMIT_TEXT)


@pytest.mark.usefixtures("topic")
async def test_ids_and_times_given_by_the_publisher_are_ignored(rest: Rest) -> None:
    """A1: the broker gives both."""
    ids = await rest.publish(message("x", messageId="7", publishTime="2001-01-01T00:00:00Z"))
    (received,) = await rest.pull()
    assert ids != ["7"]
    assert received["message"]["messageId"] == ids[0]
    assert received["message"]["publishTime"] > "2020"


async def test_publishing_to_a_missing_topic_is_not_found(rest: Rest) -> None:
    """A1: the message names the topic."""
    status, text_ = await rest.error("POST", f"{rest.topic('missing')}:publish", {"messages": [message("x")]})
    assert status == "NOT_FOUND"
    assert text_.endswith("(resource=missing).")


async def test_a_subscription_gets_what_is_published_after_its_creation_exactly(rest: Rest) -> None:
    """B6, A2: each has its own copy; a topic without subscriptions takes messages too."""
    await rest.create_topic()
    await rest.publish("nobody")
    await rest.create_subscription("first")
    await rest.publish("one")
    await rest.create_subscription("second")
    await rest.publish("both")
    assert [text(m) for m in await rest.drain("first")] == ["one", "both"]
    assert [text(m) for m in await rest.drain("second")] == ["both"]


@pytest.mark.usefixtures("topic")
async def test_order_is_kept_across_requests(rest: Rest) -> None:
    """B1: messages that are published one after another are delivered in that order."""
    for n in range(0, 30, 3):
        await rest.publish(*(str(n + i) for i in range(3)))
    assert [text(m) for m in await rest.drain()] == [str(n) for n in range(30)]
