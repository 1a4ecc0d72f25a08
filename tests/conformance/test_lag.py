"""The lag board and topics with figures: how they are listed, and what is refused."""

from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually


async def _lag(rest: Rest, **parameters: Any) -> Json:
    found: Json = await rest.ok("GET", f"{rest.project}/lag", params=parameters)
    return found


async def test_subscriptions_are_listed_with_figures_that_are_as_old_as_the_sample(rest: Rest) -> None:
    await rest.create_topic()
    for name in ("sub-a", "sub-b", "sub-c"):
        await rest.create_subscription(name)
    await rest.publish("1", "2")
    await rest.acknowledge(await rest.pull("sub-b", 2), "sub-b")

    async def is_sampled() -> bool:
        answer = await _lag(rest)
        states = [each["deliveryState"] for each in answer["subscriptions"]]
        return answer["totalSize"] == len(states) == 3 and "NOT_SAMPLED" not in states and "sampleTime" in answer

    await eventually(is_sampled)
    fresh = await _lag(rest, fresh="true", orderBy="undeliveredMessages desc")
    waiting = {each["subscription"]: each["undeliveredMessages"] for each in fresh["subscriptions"]}
    assert waiting == {rest.subscription("sub-a"): 2, rest.subscription("sub-c"): 2, rest.subscription("sub-b"): 0}
    [only] = (await _lag(rest, fresh="true", filter="name=sub-b"))["subscriptions"]
    assert (only["topic"], only["deliveryState"]) == (rest.topic(), "CAUGHT_UP")
    assert only["verdict"] == "Every message is acknowledged."


async def test_a_list_is_paged_by_name(rest: Rest) -> None:
    await rest.create_topic()
    for number in range(5):
        await rest.create_subscription(f"sub{number}")
    found, token = [], ""
    while True:
        answer = await _lag(rest, orderBy="subscription", pageSize=2, pageToken=token)
        found += [each["subscription"] for each in answer["subscriptions"]]
        token = answer.get("nextPageToken", "")
        if not token:
            break
    assert found == [rest.subscription(f"sub{number}") for number in range(5)]
    assert [each["subscription"] for each in (await _lag(rest, filter="name:sub3"))["subscriptions"]] == found[3:4]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"orderBy": "size"}, "orderBy is one of"),
        ({"filter": "size>1"}, "size cannot be compared"),
        ({"filter": "heldBy=NOBODY"}, "heldBy is one of"),
        ({"fresh": "yes"}, "fresh must be true or false (fresh=yes)."),
        ({"pageToken": "x"}, "Invalid page token given (page_token=x)."),
        ({"pageSize": "-1"}, "page_size must not be negative (page_size=-1)."),
    ],
)
async def test_a_list_that_cannot_be_is_refused(rest: Rest, parameters: Any, said: str) -> None:
    code, message = await rest.error("GET", f"{rest.project}/lag", params=parameters)
    assert code == "INVALID_ARGUMENT"
    assert said in message


async def test_topics_have_figures_if_they_are_asked_for(rest: Rest) -> None:
    for name in ("topic-a", "topic-b"):
        await rest.create_topic(name)
    await rest.create_subscription("sub", "topic-a")
    await rest.publish("12345", "67890", topic="topic-a")
    path = f"{rest.project}/topics"
    assert all("stats" not in topic for topic in (await rest.ok("GET", path))["topics"])
    stats = [topic["stats"] for topic in (await rest.ok("GET", f"{path}?view=STATS"))["topics"]]
    assert [each["subscriptionCount"] for each in stats] == [1, 0]
    assert [each["retainedMessagesEstimate"] for each in stats] == [2, 0]
    assert stats[0]["retainedBytesEstimate"] == 10
    assert stats[0]["worstSubscription"]["subscription"] == rest.subscription("sub")
    assert "worstSubscription" not in stats[1]
    assert all(each["publishedMessagesPerSecond"] >= 0 for each in stats)
    code, message = await rest.error("GET", f"{path}?view=FULL")
    assert (code, "view is one of BASIC, STATS" in message) == ("INVALID_ARGUMENT", True)
