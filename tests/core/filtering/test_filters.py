"""Filters over REST (A3)."""

import asyncio

import pytest

from tests.fixtures.broker import Rest, message, text


async def test_a_filter_is_given_back_and_decides_what_is_delivered(rest: Rest) -> None:
    await rest.create_topic()
    created = await rest.create_subscription(filter='attributes.env = "prod" AND NOT attributes:debug')
    assert created["filter"] == 'attributes.env = "prod" AND NOT attributes:debug'
    await rest.publish(
        message("yes", {"env": "prod"}),
        message("no", {"env": "prod", "debug": ""}),
        message("no", {"env": "test"}),
        message("no"),
    )
    assert [text(m) for m in await rest.pull()] == ["yes"]


@pytest.mark.parametrize(
    "text_of_filter",
    ['hasAttribute("priority")', 'attributes.topic: "payments/"', 'hasPrefix(attributes.topic, "p")'],
)
async def test_both_spellings_are_understood(rest: Rest, text_of_filter: str) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=text_of_filter)
    await rest.publish(message("yes", {"priority": "1", "topic": "payments/x"}), message("no", {"topic": "other"}))
    assert [text(m) for m in await rest.pull()] == ["yes"]


async def test_an_invalid_filter_is_refused_with_its_place(rest: Rest) -> None:
    await rest.create_topic()
    body = {"topic": rest.topic(), "filter": 'attributes.a = "x" or attributes:b'}
    code, complaint = await rest.error("PUT", rest.subscription(), body)
    assert (code, "column 20" in complaint) == ("INVALID_ARGUMENT", True), complaint
    assert (await rest.error("GET", rest.subscription()))[0] == "NOT_FOUND"


async def test_the_filter_cannot_be_changed(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    update = {"subscription": {"filter": "attributes:x"}, "updateMask": "filter"}
    assert (await rest.error("PATCH", rest.subscription(), update))[0] == "INVALID_ARGUMENT"


async def test_a_waiting_pull_is_woken_by_the_match_and_not_by_the_rest(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter='attributes.env = "prod"')
    waiting = asyncio.create_task(rest.pull(wait=True))
    await rest.publish(message("no", {"env": "test"}))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await rest.publish(message("yes", {"env": "prod"}))
    assert [text(m) for m in await waiting] == ["yes"]


async def test_a_snapshot_is_sought_through_the_new_subscriptions_filter(rest: Rest) -> None:
    """Google's way to change a filter: snapshot, new subscription with another filter, seek."""
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(message("prod", {"env": "prod"}), message("test", {"env": "test"}))
    await rest.pull(max_messages=1)  # one is out, one is not
    snapshot = f"{rest.project}/snapshots/snap"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    await rest.create_subscription("filtered", filter='attributes.env = "test"')
    await rest.ok("POST", f"{rest.subscription('filtered')}:seek", {"snapshot": snapshot})
    assert [text(m) for m in await rest.pull("filtered")] == ["test"]


async def test_what_does_not_match_is_not_counted_as_undelivered(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter="attributes:wanted")
    await rest.publish(message("a", {"wanted": ""}), message("b"), message("c", {"wanted": ""}), message("d"))
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert (position["undeliveredMessages"], "undeliveredMessagesEstimated" in position) == (2, False)
    await rest.pull(max_messages=1)
    assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 2
