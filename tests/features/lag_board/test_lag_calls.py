"""`GET /lag` of a running broker."""

import asyncio
from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually, message, text

pytestmark = pytest.mark.own_broker(lag_interval_seconds=0.1)


async def _lag(rest: Rest, **parameters: Any) -> Json:
    found: Json = await rest.ok("GET", f"{rest.project}/lag", params=parameters)
    return found


async def test_the_list_has_what_was_sampled_of_each_subscription_and_what_holds_it(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription("idle")
    await rest.create_subscription("paused", pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
    await rest.ok("POST", f"{rest.subscription('paused')}:pausePush", {"reason": "Maintenance."})
    assert (await _lag(rest))["totalSize"] == 2
    await rest.publish("hello")
    found: dict[str, Json] = {}

    async def is_sampled() -> bool:
        answer = await _lag(rest)
        found.update({lag["subscription"].rpartition("/")[2]: lag for lag in answer["subscriptions"]})
        rates = [lag.get("incomingMessagesPerSecond") for lag in found.values()]
        return "sampleTime" in answer and rates == [0, 0] and found["idle"]["undeliveredMessages"] == 1

    await eventually(is_sampled)
    idle, paused = found["idle"], found["paused"]
    age = idle.pop("oldestUndeliveredMessageAge")
    assert age.endswith("s")
    assert idle == {
        "subscription": rest.subscription("idle"),
        "topic": rest.topic(),
        "oldestUndeliveredPublishTime": idle["oldestUndeliveredPublishTime"],
        "messageRetentionDuration": "604800s",
        "undeliveredMessages": 1,
        "undeliveredBytesEstimate": 5,
        "outstandingMessages": 0,
        "deadLetters": 0,
        "incomingMessagesPerSecond": 0.0,
        "outgoingMessagesPerSecond": 0.0,
        "deliveryState": "RECENT",
        "verdict": "All messages are less than 10s old.",
    }
    assert paused == paused | {
        "deliveryState": "PAUSED",
        "heldBy": "PAUSED",
        "paused": True,
        "pausedReason": "Maintenance.",
        "push": {
            "breaker": "closed",
            "consecutiveFailures": 0,
            "outstandingRequests": 0,
        },
        "verdict": f"Push delivery is paused since {paused['pauseTime']}: Maintenance.",
    }
    held = await _lag(rest, filter="heldBy=PAUSED", orderBy="undeliveredMessages desc")
    assert [lag["subscription"] for lag in held["subscriptions"]] == [rest.subscription("paused")]
    assert held["totalSize"] == 2


async def test_pages_follow_each_other_to_the_end(rest: Rest) -> None:
    await rest.create_topic()
    names = [f"sub{number}" for number in range(7)]
    await asyncio.gather(*(rest.create_subscription(name) for name in names))
    found: list[str] = []
    token = ""
    while True:
        page = await _lag(rest, pageSize=3, pageToken=token)
        found += [lag["subscription"].rpartition("/")[2] for lag in page["subscriptions"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
        await rest.publish("a")
    assert sorted(found) == names


async def test_a_fresh_answer_is_computed_while_the_caller_waits(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription("worker")
    for count in range(1, 4):
        await rest.publish("a")
        answer = await _lag(rest, fresh="true", filter="name=worker")
        assert [lag["undeliveredMessages"] for lag in answer["subscriptions"]] == [count]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"pageSize": "-1"}, "page_size=-1"),
        ({"pageToken": "x"}, "page_token=x"),
        ({"orderBy": "name"}, "orderBy=name"),
        ({"filter": "heldBy>PAUSED"}, "heldBy cannot be compared by >"),
        ({"fresh": "yes"}, "fresh=yes"),
    ],
)
async def test_a_parameter_that_cannot_be_is_refused_with_its_name_and_value(
    rest: Rest, parameters: dict[str, str], said: str
) -> None:
    code, text = await rest.error("GET", f"{rest.project}/lag", params=parameters)
    assert (code, said in text) == ("INVALID_ARGUMENT", True), text


async def test_a_subscription_that_has_skipped_messages_says_so_and_warns(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True)
    await rest.publish("a", "b", "c")
    await rest.ok("POST", f"{rest.subscription()}:purge", {})
    [lag] = (await _lag(rest, fresh="true"))["subscriptions"]
    at = lag["lastSkip"]["skipTime"]
    assert lag["lastSkip"] == {"messages": 3, "skipTime": at, "cause": "PURGE"}
    assert lag["verdict"] == f"Every message is acknowledged, except 3 that a purge at {at} dropped."
    assert lag["warnings"] == [
        f"3 messages are not delivered: a purge at {at} dropped them. If that was a mistake, undo it or seek back."
    ]

    async def is_sampled() -> bool:
        [sampled] = (await _lag(rest))["subscriptions"]
        return bool(sampled.get("lastSkip") == lag["lastSkip"] and sampled["warnings"] == lag["warnings"])

    await eventually(is_sampled)
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    [back] = (await _lag(rest, fresh="true"))["subscriptions"]
    assert (back["undeliveredMessages"], "lastSkip" in back, "warnings" in back) == (3, False, False)


async def _hold_and_let_wait(rest: Rest) -> None:
    """Of one ordering key two messages are out, and two that were passed wait for them; of another, one is out."""
    await rest.create_topic()
    await rest.create_subscription(enableMessageOrdering=True, retainAckedMessages=True, ackDeadlineSeconds=600)
    await rest.publish(*(message(data, orderingKey="k") for data in "ab"))
    assert [text(each) for each in await rest.pull()] == ["a", "b"]
    await rest.publish(*(message(data, orderingKey="k") for data in "cd"))
    await rest.publish(message("z", orderingKey="l"))
    assert [text(each) for each in await rest.pull()] == ["z"]


async def test_messages_that_wait_for_their_key_after_a_seek_back_are_not_called_skipped(rest: Rest) -> None:
    await _hold_and_let_wait(rest)
    snapshot = f"{rest.project}/snapshots/held"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": snapshot})
    [lag] = (await _lag(rest, fresh="true"))["subscriptions"]
    assert (lag["undeliveredMessages"], "lastSkip" in lag, "warnings" in lag) == (5, False, False)
    assert sorted(text(each) for each in await rest.drain()) == list("abcdz")


async def test_messages_that_waited_for_their_key_are_counted_among_those_that_a_purge_dropped(rest: Rest) -> None:
    await _hold_and_let_wait(rest)
    await rest.ok("POST", f"{rest.subscription()}:purge", {})
    [lag] = (await _lag(rest, fresh="true"))["subscriptions"]
    assert (lag["undeliveredMessages"], lag["lastSkip"]["messages"]) == (0, 5)
