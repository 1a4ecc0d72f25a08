"""Seeks that are undone, and purges, over REST; extensions (G2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.db.driver.database import Database
from tests.core.pulling.stream import Streams
from tests.fixtures.broker import Rest, message, text
from tests.fixtures.in_process import running_in_process
from tests.interleavings.steps import execute, lock_rows, open_transaction, until_waiting

LATER = "2100-01-01T00:00:00Z"


def texts(received: list[dict[str, object]]) -> list[str]:
    return sorted(text(message) for message in received)


@pytest.fixture
async def two(database_url: str, project: str) -> AsyncIterator[tuple[Rest, Rest]]:
    """Two processes on one database."""
    async with AsyncExitStack() as stack:
        brokers = [Broker(AppConfig(database_url=database_url, pull_wait_seconds=30)) for _ in range(2)]
        clients = [await stack.enter_async_context(running_in_process(broker)) for broker in brokers]
        yield Rest(clients[0], project), Rest(clients[1], project)


async def test_a_seek_is_undone_to_what_was_not_acked_and_those_before_it_after_that(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    seek, undo = f"{rest.subscription()}:seek", f"{rest.subscription()}:undoSeek"
    await rest.publish("acked")
    await rest.acknowledge(await rest.pull())
    await rest.publish("out", "waits")
    [out] = await rest.pull(max_messages=1)
    kept = (await rest.ok("POST", seek, {"time": LATER, "undoable": True}))["undoSnapshot"]
    assert (await rest.ok("GET", kept))["topic"] == rest.topic()
    await rest.publish("later")
    await rest.ok("POST", f"{rest.subscription()}:purge", {"undoable": True})
    assert await rest.pull() == []
    preview = await rest.ok("POST", f"{rest.subscription()}:previewSeek", {"undo": True})
    assert (preview["replayedMessages"], preview["skippedMessages"]) == (1, 0)
    assert await rest.pull() == []
    assert (await rest.ok("POST", undo))["replayedMessages"] == 1
    assert texts(await rest.pull()) == ["later"]
    assert (await rest.ok("POST", undo))["replayedMessages"] == 3
    assert texts(await rest.drain()) == ["later", "out", "waits"]
    assert (await rest.error("GET", kept))[0] == "NOT_FOUND"
    code, why = await rest.error("POST", undo)
    assert (code, "no seek to undo" in why) == ("FAILED_PRECONDITION", True)
    assert await rest.error("POST", f"{rest.subscription()}:previewSeek", {"undo": True}) == (code, why)
    assert text(out) == "out"


async def test_an_undo_is_previewed_without_a_target(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    path = f"{rest.subscription()}:previewSeek"
    code, why = await rest.error("POST", path, {"undo": True, "time": LATER})
    assert (code, why) == ("INVALID_ARGUMENT", "undo cannot be given with time or snapshot.")


async def test_the_answer_says_until_when_a_seek_or_a_purge_can_be_undone(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for verb, body in (("seek", {"time": LATER}), ("purge", {})):
        path = f"{rest.subscription()}:{verb}"
        answer = await rest.ok("POST", path, {**body, "undoable": True})
        assert answer["undoUntil"] == (await rest.ok("GET", answer["undoSnapshot"]))["expireTime"]
        assert "undoUntil" not in await rest.ok("POST", path, body)


async def test_only_what_was_asked_to_can_be_undone_and_only_in_that_subscription(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.create_subscription("other")
    answer = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": LATER})
    assert "undoSnapshot" not in answer
    await rest.ok("POST", f"{rest.subscription('other')}:seek", {"time": LATER, "undoable": True})
    assert (await rest.error("POST", f"{rest.subscription()}:undoSeek"))[0] == "FAILED_PRECONDITION"
    code, why = await rest.error("POST", f"{rest.subscription()}:seek", {"time": LATER, "undoable": "maybe"})
    assert (code, "undoable" in why) == ("INVALID_ARGUMENT", True)


async def test_two_who_undo_at_once_undo_two_seeks(two: tuple[Rest, Rest], database: Database) -> None:
    rest, other = two
    await rest.create_topic()
    await rest.create_subscription()
    for _ in range(2):
        await rest.ok("POST", f"{rest.subscription()}:seek", {"time": LATER, "undoable": True})
    async with open_transaction(database) as claiming:
        await lock_rows(claiming, "cursors")
        undoing = [asyncio.create_task(each.call("POST", f"{rest.subscription()}:undoSeek")) for each in two]
        await until_waiting(database, 2)
    assert [(await each).status_code for each in undoing] == [200, 200]
    assert (await other.error("POST", f"{rest.subscription()}:undoSeek"))[0] == "FAILED_PRECONDITION"


async def test_seeks_take_cursors_before_snapshots_as_a_purge_of_the_topic_does(
    two: tuple[Rest, Rest], database: Database
) -> None:
    rest, _ = two
    await rest.create_topic()
    await rest.create_subscription()
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": LATER, "undoable": True})
    snapshot = f"{rest.project}/snapshots/snapshot"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    async with open_transaction(database) as purging:
        await lock_rows(purging, "cursors")
        undoing = asyncio.create_task(rest.call("POST", f"{rest.subscription()}:undoSeek"))
        seeking = asyncio.create_task(rest.call("POST", f"{rest.subscription()}:seek", {"snapshot": snapshot}))
        await until_waiting(database, 2)
        await execute(purging, "SELECT FROM snapshots FOR UPDATE NOWAIT")  # else whoever waits is waited for
        await execute(purging, "DELETE FROM snapshots")
    assert ((await undoing).status_code, (await seeking).status_code) == (400, 404)


async def test_a_subscription_is_purged_of_all_or_of_what_is_older(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True)
    await rest.create_subscription("bystander")
    purge = f"{rest.subscription()}:purge"
    await rest.publish("old", "older")
    await rest.acknowledge((await rest.pull())[:1])
    await asyncio.sleep(0.01)
    between = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    await rest.publish("new")
    assert await rest.ok("POST", purge, {"before": between}) == {}
    assert texts(await rest.pull()) == ["new"], "and nothing that was acked comes again"
    await rest.publish("newer")
    assert await rest.ok("POST", purge) == {}
    assert await rest.pull() == []
    await rest.publish("newest")
    assert texts(await rest.drain()) == ["newest"]
    assert texts(await rest.drain("bystander")) == ["new", "newer", "newest", "old", "older"]
    code, why = await rest.error("POST", purge, {"before": "soon"})
    assert (code, "before" in why) == ("INVALID_ARGUMENT", True)


async def test_by_a_filter_what_matches_goes_wherever_it_is_and_the_rest_stays_as_it_was(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    await rest.create_subscription()
    await rest.create_subscription("bystander")
    purge = f"{rest.subscription()}:purge"
    for n in range(3):
        await rest.publish(*(message(f"{env}{n}", {"env": env}) for env in ("test", "prod")))
    [acked, *out] = await rest.pull(max_messages=3)
    await rest.acknowledge([acked])
    plan = await rest.ok("POST", purge, {"filter": 'attributes.env = "test"', "validateOnly": True})
    assert (plan["metadata"]["verb"], plan["done"], plan["response"]["chosen"]) == ("purge", True, "2")
    assert (plan["metadata"]["counts"], plan["metadata"].get("totalIsEstimate")) == ({"purged": "2"}, None)
    started = await rest.ok("POST", purge, {"filter": 'attributes.env = "test"', "maxMessagesPerSecond": 1000})
    await rest.publish(message("test later", {"env": "test"}))
    ended = await rest.ok("POST", f"{started['name']}:wait", {})
    assert ended["response"] == {"@type": "type.googleapis.com/broker.v1.PurgeResponse", "purged": "2"}
    assert texts(await rest.drain()) == ["prod1", "prod2", "test later"]
    await rest.modify_ack_deadline(out, 0)
    assert texts(await rest.drain()) == ["prod0"]
    assert len(await rest.drain("bystander")) == 7
    again = await rest.ok("POST", purge, {"filter": "attributes:env"})
    assert (await rest.ok("POST", f"{again['name']}:wait", {}))["metadata"]["done"] == "0"


async def test_by_a_filter_what_is_left_of_a_deleted_topic_goes_too(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(message("test", {"env": "test"}), "other")
    await rest.ok("DELETE", rest.topic())
    started = await rest.ok("POST", f"{rest.subscription()}:purge", {"filter": "attributes:env"})
    ended = await rest.ok("POST", f"{started['name']}:wait", {})
    assert ended["metadata"]["counts"] == {"purged": "1"}
    assert texts(await rest.drain()) == ["other"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"filter": "nonsense"}, "nonsense"),
        ({"filter": "attributes:a", "undoable": True}, "undoable"),
        ({"filter": "attributes:a", "maxMessagesPerSecond": 0}, "maxMessagesPerSecond=0"),
        ({"maxMessagesPerSecond": 5}, "with a filter"),
    ],
)
async def test_a_purge_that_cannot_be_meant_is_refused(rest: Rest, body: dict[str, object], said: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a")
    code, why = await rest.error("POST", f"{rest.subscription()}:purge", body)
    assert (code, said in why) == ("INVALID_ARGUMENT", True), why
    assert texts(await rest.pull()) == ["a"]


async def test_a_purged_topic_has_nothing_for_anybody_and_goes_on(two: tuple[Rest, Rest]) -> None:
    """Readers and publishers of all processes, which know its logs, take the new ones."""
    rest, other = two
    await rest.create_topic(messageRetentionDuration="3600s")
    for name in ("sub", "ordered", "paused", "streamed"):
        await rest.create_subscription(name, enableMessageOrdering=name == "ordered")
    streams = Streams(str(other.client.base_url), rest)
    stream = await streams.open("streamed", acks_at_once=True)
    ids = await rest.publish("old", "older")
    await other.publish("oldest")
    await stream.take(3)
    [out] = await rest.pull(max_messages=1)
    await rest.ok("POST", f"{rest.subscription('paused')}:pause")
    snapshot = f"{rest.project}/snapshots/snap"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    assert await rest.ok("POST", f"{rest.topic()}:purge") == {}
    assert [await each.pull(name) for each in two for name in ("sub", "ordered")] == [[]] * 4
    await rest.acknowledge([out])
    waiting = asyncio.create_task(other.pull("ordered", wait=True))
    await other.publish("new")
    assert texts(await waiting) == ["new"]
    assert texts(await rest.drain()) == ["new"]
    assert [message.text for message in await stream.take(1)] == ["new"]
    assert await other.pull("paused") == []
    await rest.ok("POST", f"{rest.subscription('paused')}:resume")
    await rest.ok("POST", f"{rest.subscription('paused')}:seek", {"time": "2000-01-01T00:00:00Z"})
    assert texts(await rest.drain("paused")) == ["new"]
    assert (await rest.error("GET", snapshot))[0] == "NOT_FOUND"
    assert (await rest.error("GET", f"{rest.topic()}/messages/{ids[0]}"))[0] == "NOT_FOUND"
    await streams.close()


async def test_what_is_published_while_a_topic_is_purged_comes_once_or_is_gone(two: tuple[Rest, Rest]) -> None:
    rest, other = two
    await rest.create_topic()
    await rest.create_subscription()
    purged = asyncio.Event()
    before: list[str] = []
    after: list[str] = []

    async def publish(each: Rest) -> None:
        while len(after) < 30:
            known = purged.is_set()
            (after if known else before).extend(await each.publish("x"))

    publishing = [asyncio.create_task(publish(each)) for each in (rest, other, rest, other)]
    for _ in range(3):
        await rest.ok("POST", f"{rest.topic()}:purge")
    purged.set()
    await asyncio.gather(*publishing)
    got = [message["message"]["messageId"] for message in await rest.drain()]
    assert len(set(got)) == len(got)
    assert set(after) <= set(got) <= {*before, *after}
    assert (await rest.ok("GET", f"{rest.project}/lag?fresh=true"))["subscriptions"][0]["undeliveredMessages"] == 0


async def test_a_frozen_topic_that_is_purged_stays_frozen(rest: Rest) -> None:
    await rest.create_topic()
    await rest.ok("POST", f"{rest.topic()}:freeze")
    await rest.ok("POST", f"{rest.topic()}:purge")
    body = {"messages": [{"data": "eA=="}]}
    assert (await rest.error("POST", f"{rest.topic()}:publish", body))[0] == "FAILED_PRECONDITION"
    await rest.ok("POST", f"{rest.topic()}:unfreeze")
    await rest.publish("x")


@pytest.mark.parametrize(
    ("verb", "body"), [("seek", {"time": LATER}), ("previewSeek", {"time": LATER}), ("purge", {}), ("undoSeek", {})]
)
async def test_what_meets_a_purge_of_the_topic_is_of_the_new_logs(
    two: tuple[Rest, Rest], database_url: str, verb: str, body: dict[str, object]
) -> None:
    rest, other = two
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a")
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": LATER, "undoable": True})
    watching = Database(database_url)
    try:
        async with open_transaction(watching) as claiming:
            await lock_rows(claiming, "cursors")
            purging = asyncio.create_task(other.ok("POST", f"{rest.topic()}:purge"))
            await until_waiting(watching)
            seeking = asyncio.create_task(rest.call("POST", f"{rest.subscription()}:{verb}", body))
            await until_waiting(watching, 2)
        await purging
        answer = await seeking
    finally:
        await watching.close()
    if verb == "undoSeek":  # the snapshot that it goes back to is gone with the old logs
        assert answer.json()["error"]["status"] == "FAILED_PRECONDITION"
    else:
        assert answer.status_code == 200, answer.text
    await rest.publish("b")
    assert texts(await rest.drain()) == ["b"]
