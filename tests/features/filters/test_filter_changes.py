"""Changing the filter of a subscription over REST: earlier messages keep the verdict of the earlier filter (A3)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.model.filter_changes import MAX_EARLIER
from broker.model.timestamps import parse_timestamp
from tests.fixtures.broker import Rest, eventually, message, text
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes
from tests.fixtures.two_processes import Two, two_processes

PROD, TEST = 'attributes.env = "prod"', 'attributes.env = "test"'
BOTH_BODIES = {"cheap": '{"price": 5}', "dear": '{"price": 500}'}


async def set_filter(rest: Rest, wanted: str, name: str = "sub", **fields: Any) -> dict[str, Any]:
    return await rest.ok("POST", f"{rest.subscription(name)}:setFilter", {"filter": wanted, **fields})


async def publish_both(rest: Rest, when: str) -> None:
    await rest.publish(message(f"prod {when}", {"env": "prod"}), message(f"test {when}", {"env": "test"}))


def texts(received: list[dict[str, Any]]) -> list[str]:
    return sorted(text(each) for each in received)


async def test_a_new_filter_decides_about_later_messages_and_the_old_one_about_earlier_ones(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    await publish_both(rest, "before")
    answer = await set_filter(rest, TEST)
    assert (answer["filter"], answer["previousFilter"], answer["changed"]) == (TEST, PROD, True)
    assert (await rest.ok("GET", rest.subscription()))["filter"] == TEST
    await publish_both(rest, "after")
    received = await rest.drain()
    assert texts(received) == ["prod before", "test after"]
    changed_at = parse_timestamp(answer["effectiveTime"], "effectiveTime")
    for each in received:
        published = parse_timestamp(each["message"]["publishTime"], "publishTime")
        assert (published >= changed_at) is text(each).endswith("after")


async def test_each_filter_of_several_keeps_its_messages(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    for turn, wanted in enumerate((TEST, "", 'NOT attributes.env = "test"', TEST)):
        await publish_both(rest, str(turn))
        await set_filter(rest, wanted)
    await publish_both(rest, "4")
    assert texts(await rest.drain()) == ["prod 0", "prod 2", "prod 3", "test 1", "test 2", "test 4"]


async def test_a_seek_back_delivers_to_each_filter_what_was_its_own(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD, retainAckedMessages=True)
    await publish_both(rest, "before")
    await set_filter(rest, TEST)
    await publish_both(rest, "after")
    await rest.drain()
    replay = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    assert replay.get("replayedMessages", 2) == 2
    assert texts(await rest.drain()) == ["prod before", "test after"]


async def test_a_snapshot_from_before_the_change_restores_what_the_old_filter_let_through(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    await publish_both(rest, "before")
    await rest.ok("PUT", f"{rest.project}/snapshots/snap", {"subscription": rest.subscription()})
    await rest.drain()
    await set_filter(rest, TEST)
    await publish_both(rest, "after")
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": f"{rest.project}/snapshots/snap"})
    assert texts(await rest.drain()) == ["prod before", "test after"]


async def test_a_message_that_is_out_is_redelivered_whatever_the_new_filter_says(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    await publish_both(rest, "before")
    leased = await rest.pull()
    await set_filter(rest, TEST)
    await publish_both(rest, "after")
    await rest.modify_ack_deadline(leased, 0)
    assert texts(await rest.drain()) == ["prod before", "test after"]


async def test_messages_that_wait_for_their_ordering_key_keep_their_verdict(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD, enableMessageOrdering=True)

    async def publish(when: str) -> None:
        for number in range(3):
            for env in ("prod", "test"):
                await rest.publish(message(f"{env} {when} {number}", {"env": env}, orderingKey="k"))

    await publish("before")
    leased = await rest.pull(max_messages=1)
    await set_filter(rest, TEST)
    await publish("after")
    await rest.modify_ack_deadline(leased, 0)
    received: list[str] = []
    while batch := await rest.pull(max_messages=2):
        received += map(text, batch)
        await rest.acknowledge(batch)
    assert received == [f"{env} {n}" for env in ("prod before", "test after") for n in range(3)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("body.price < 100", "body.price >= 100", ["cheap before", "dear after"]),
        ("body.price < 100", "attributes:k", ["cheap after", "cheap before", "dear after"]),
        ("NOT attributes:k", "body.price >= 100", ["dear after"]),
        ("", "body.price < 100", ["cheap after", "cheap before", "dear before"]),
        ("body.price < 100", "", ["cheap after", "cheap before", "dear after"]),
    ],
)
async def test_filters_of_bodies_and_of_attributes_take_turns(
    rest: Rest, first: str, second: str, expected: list[str]
) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=first)

    async def publish(when: str) -> None:
        await rest.publish(*(message(body, {"k": f"{kind} {when}"}) for kind, body in BOTH_BODIES.items()))

    await publish("before")
    await set_filter(rest, second)
    await publish("after")
    received = await rest.drain()
    assert sorted(each["message"]["attributes"]["k"] for each in received) == expected


async def test_the_same_filter_changes_nothing_so_a_call_may_be_repeated(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    assert await set_filter(rest, PROD) == {"filter": PROD, "previousFilter": PROD, "changed": False}


async def test_a_preview_says_how_many_messages_would_be_decided_otherwise_and_changes_nothing(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    everything = [{"env": "prod"}, {"env": "prod", "tenant": "a"}, {"tenant": "a"}, {"env": "test"}]
    await rest.publish(*(message("x", attributes) for attributes in everything))
    preview = await set_filter(rest, "attributes:tenant", validateOnly=True)
    assert preview == {
        "filter": "attributes:tenant",
        "previousFilter": PROD,
        "changed": True,
        "preview": {
            "scannedMessageCount": 4,
            "previouslyMatchedMessageCount": 2,
            "matchedMessageCount": 2,
            "newlyMatchedMessageCount": 1,
            "noLongerMatchedMessageCount": 1,
        },
    }
    assert (await rest.ok("GET", rest.subscription()))["filter"] == PROD
    await publish_both(rest, "after")
    assert "prod after" in texts(await rest.drain())


@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_cannot_be_a_change_is_refused_with_the_reason(rest: Rest, validate_only: bool) -> None:
    await rest.create_topic()
    await rest.create_subscription()

    async def refusal(name: str = "sub", **body: Any) -> tuple[str, str]:
        body["validateOnly"] = validate_only
        return await rest.error("POST", f"{rest.subscription(name)}:setFilter", body)

    code, complaint = await refusal(filter='attributes.a = "x" or attributes:b')
    assert (code, "column 20" in complaint) == ("INVALID_ARGUMENT", True), complaint
    code, complaint = await refusal()
    assert (code, "filter" in complaint) == ("INVALID_ARGUMENT", True), complaint
    code, complaint = await refusal(filter="x" * 257)
    assert code == "INVALID_ARGUMENT"
    assert (await refusal("none", filter=PROD))[0] == "NOT_FOUND"
    await rest.ok("POST", f"{rest.subscription()}:detach")
    assert (await refusal(filter=PROD))[0] == "FAILED_PRECONDITION"


async def test_no_more_filters_are_kept_than_the_limit(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for turn in range(MAX_EARLIER):
        await publish_both(rest, str(turn))
        await set_filter(rest, PROD if turn % 2 == 0 else TEST)
    for fields in ({}, {"validateOnly": True}):
        code, complaint = await rest.error(
            "POST", f"{rest.subscription()}:setFilter", {"filter": "attributes:x", **fields}
        )
        assert (code, str(MAX_EARLIER) in complaint) == ("FAILED_PRECONDITION", True), complaint
    assert len(await rest.drain()) == 2 + MAX_EARLIER - 1


async def test_changes_between_which_nothing_is_published_are_not_counted(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    await publish_both(rest, "before")
    for turn in range(MAX_EARLIER + 5):
        await set_filter(rest, "attributes:x" if turn % 2 == 0 else TEST)
    await publish_both(rest, "after")
    assert texts(await rest.drain()) == ["prod before"]  # the last one was attributes:x


async def test_a_message_is_explained_by_the_filter_of_its_time(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    [before] = await rest.publish(message("test", {"env": "test"}))
    await set_filter(rest, TEST)
    [after] = await rest.publish(message("prod", {"env": "prod"}))
    for message_id, verdict in (
        (before, f"It does not match the filter of the time when it was published: {PROD}"),
        (after, f"It does not match the filter: {TEST}"),
    ):
        report = await rest.ok("GET", f"{rest.subscription()}/messages/{message_id}")
        assert (report["state"], report["verdict"]) == ("FILTERED", verdict)


async def test_lists_counts_and_trials_ask_the_filter_of_each_message(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    await publish_both(rest, "before")
    await set_filter(rest, TEST)
    await publish_both(rest, "after")
    [lag] = (await rest.ok("GET", f"{rest.project}/lag?fresh=true"))["subscriptions"]
    assert lag["undeliveredMessages"] == 2
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert position["undeliveredMessages"] == 2
    tested = await rest.ok("POST", f"{rest.subscription()}:testFilter", {"includeData": True})
    assert texts([{"message": each} for each in tested["matchedMessages"]]) == ["prod before", "test after"]
    listed = (await rest.ok("GET", f"{rest.subscription()}/messages"))["messages"]
    assert texts(listed) == ["prod before", "test after"]


async def test_a_purge_leaves_later_messages_to_the_new_filter(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=PROD)
    await publish_both(rest, "before")
    await set_filter(rest, TEST)
    await rest.ok("POST", f"{rest.topic()}:purge", {})
    await publish_both(rest, "after")
    assert texts(await rest.drain()) == ["test after"]


@pytest.fixture
async def two(database_url: str, project: str) -> AsyncIterator[Two]:
    """The other process has read the subscription, and does not hear that it changes."""
    async with two_processes(database_url, project) as two:
        await two.rest.create_subscription(filter=PROD)
        await two.other.publish(message("known", {"env": "prod"}))
        await two.other.acknowledge(await two.other.pull())
        two.deafen()
        yield two


async def test_a_process_that_does_not_hear_of_the_change_does_not_apply_the_old_filter(two: Two) -> None:
    await publish_both(two.rest, "before")
    await set_filter(two.rest, TEST)
    await publish_both(two.other, "after")
    assert texts(await two.other.drain()) == ["prod before", "test after"]


async def test_nor_does_a_pull_that_waited_while_the_filter_was_changed(two: Two) -> None:
    waiting = asyncio.create_task(two.other.pull(wait=True))
    await eventually(lambda: two.rest.ok("GET", two.rest.subscription()))
    await set_filter(two.rest, TEST)
    await publish_both(two.rest, "after")
    assert texts(await waiting) == ["test after"]


async def test_pushes_follow_the_change_of_whichever_process(two: Two, push_sink: PushSink) -> None:
    pushes = Pushes(two.rest, push_sink)
    path = await pushes.subscribe(name="pushed", filter=PROD)
    await publish_both(two.rest, "before")
    await pushes.until_taken(path, "prod before")
    await set_filter(two.rest, TEST, "pushed")
    for number in range(5):
        await publish_both(two.other, f"after {number}")
    await pushes.until_taken(path, *(f"test after {number}" for number in range(5)))
    assert not [each for each in await pushes.taken(path) if each.startswith(("prod after", "test before"))]


async def test_every_message_of_many_publishers_is_decided_by_the_filter_that_was_answered_before_it(
    two: Two,
) -> None:
    filters = [f'attributes.turn = "{turn}"' for turn in range(8)]
    begun = answered = 0
    wanted, unwanted = list[str](), list[str]()

    async def publish(number: int, api: Rest) -> None:
        count = 0
        while answered < len(filters) - 1:
            turn, count = answered, count + 1
            name = f"{number} {count} {turn}"
            late = message(f"late {name}", {"turn": str(turn - 1)})  # its filter is past
            await api.publish(message(name, {"turn": str(turn)}), late)
            unwanted.append(text({"message": late}))
            if begun == turn:  # no other filter can have decided about it
                wanted.append(name)

    await set_filter(two.rest, filters[0])
    publishers = [asyncio.create_task(publish(n, api)) for n, api in enumerate((two.rest, two.other) * 2)]
    for turn in range(1, len(filters)):
        await two.other.publish("a turn of the publishers")
        await eventually(lambda before=turn - 1: any(name.endswith(f" {before}") for name in wanted))
        begun = turn
        await set_filter(two.rest, filters[turn])
        answered = turn
    await asyncio.gather(*publishers)
    received = {*texts([*await two.other.drain(), *await two.rest.drain()])}
    assert received.issuperset(wanted)
    assert received.isdisjoint(unwanted)
