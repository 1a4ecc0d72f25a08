"""Pausing subscriptions and freezing topics, over REST; extensions (G2)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.core.pulling.stream import A_WHILE, Streams
from tests.fixtures.broker import Rest, eventually, text
from tests.fixtures.two_processes import Two, two_processes


@pytest.fixture
async def two(database_url: str, project: str) -> AsyncIterator[Two]:
    async with two_processes(database_url, project) as two:
        yield two


async def test_nothing_is_handed_out_after_a_pause_was_answered_by_whichever_process(
    two: Two,
) -> None:
    await two.rest.create_subscription()
    await two.rest.publish("one")
    [leased] = await two.other.pull()
    two.deafen()
    assert await two.rest.ok("POST", f"{two.rest.subscription()}:pause", {"reason": "Ada looks."}) == {}
    await two.rest.publish("two")
    waiting = [asyncio.create_task(each.pull(wait=True)) for each in (two.rest, two.other)]
    assert [await each.pull() for each in (two.other, two.rest)] == [[], []]
    await two.other.acknowledge([leased])
    [lag] = (await two.rest.ok("GET", f"{two.rest.project}/lag?fresh=true"))["subscriptions"]
    assert (lag["deliveryState"], lag["paused"], lag["pausedReason"]) == ("PAUSED", True, "Ada looks.")
    assert lag["undeliveredMessages"] == 1
    position = await two.rest.ok("GET", f"{two.rest.subscription()}/snapshot")
    assert (position["paused"], position["pausedReason"]) == (True, "Ada looks.")
    assert "pauseTime" in position
    await eventually(two.wait_for_a_resume)
    done, _ = await asyncio.wait(waiting, timeout=A_WHILE)
    assert not done
    assert await two.other.ok("POST", f"{two.rest.subscription()}:resume") == {}
    assert "paused" not in await two.rest.ok("GET", f"{two.rest.subscription()}/snapshot")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert [text(m) for task in done for m in task.result()] == ["two"]
    for task in waiting:
        task.cancel()


async def test_streams_wait_while_a_subscription_is_paused_and_go_on_then(two: Two) -> None:
    await two.rest.create_subscription()
    streams = Streams(str(two.rest.client.base_url), two.rest)
    stream = await streams.open(acks_at_once=True)
    await two.rest.publish("before")
    await stream.take(1)
    await two.other.ok("POST", f"{two.rest.subscription()}:pause")
    await two.rest.publish("meanwhile")
    messages = (await two.rest.ok("GET", f"{two.rest.subscription()}/messages"))["messages"]
    assert [(text(m), m["state"]) for m in messages] == [("meanwhile", "WAITING")]
    assert len(stream.received) == 1
    await two.other.ok("POST", f"{two.rest.subscription()}:resume")
    [received] = await stream.take(1)
    assert (received.text, stream.end) == ("meanwhile", None)
    await streams.close()


async def test_a_pause_is_one_state_with_that_of_pushes(two: Two) -> None:
    name = two.rest.subscription()
    await two.rest.create_subscription(pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
    await two.rest.ok("POST", f"{name}:pause", {"reason": "Maintenance."})
    status = await two.rest.ok("GET", f"{name}:pushStatus")
    assert (status["state"], status["pausedReason"], "pauseTime" in status) == ("PAUSED", "Maintenance.", True)
    await two.rest.ok("POST", f"{name}:resumePush")
    assert (await two.rest.ok("GET", f"{name}:pushStatus"))["state"] == "ACTIVE"
    await two.rest.ok("POST", f"{name}:pausePush")
    await two.rest.ok("POST", f"{name}:modifyPushConfig", {"pushConfig": {}})
    await two.rest.publish("hello")
    assert [text(m) for m in await two.rest.pull()] == ["hello"], "the pause of pushes has outlived them"


async def test_setting_what_is_pulled_to_be_pulled_ends_no_pause(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.ok("POST", f"{rest.subscription()}:pause")
    await rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", {"pushConfig": {}})
    await rest.publish("hello")
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:resume")
    assert [text(m) for m in await rest.pull()] == ["hello"]


async def test_what_cannot_be_paused_is_refused_by_name(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    path = f"{rest.subscription()}:pause"
    assert (await rest.error("POST", path, {"reason": "x" * 1_001}))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("POST", f"{rest.subscription('none')}:pause"))[0] == "NOT_FOUND"
    await rest.ok("POST", f"{rest.subscription()}:detach")
    code, why = await rest.error("POST", path)
    assert (code, "detached" in why) == ("FAILED_PRECONDITION", True)


async def test_a_frozen_topic_refuses_in_every_process_from_the_answer_on_and_says_why(two: Two) -> None:
    await two.rest.create_subscription()
    await two.other.publish("before")
    two.deafen()
    topic = two.rest.topic()
    assert await two.rest.ok("POST", f"{topic}:freeze", {"reason": "The schema is migrated."}) == {}
    for each in (two.other, two.rest):
        code, why = await each.error("POST", f"{topic}:publish", {"messages": [{"data": "eA=="}]})
        assert code == "FAILED_PRECONDITION"
        assert "Topic is frozen since " in why
        assert "The schema is migrated (resource=topic)." in why
    frozen = await two.rest.ok("GET", topic)
    assert frozen["frozen"]["reason"] == "The schema is migrated."
    update = {"topic": {**frozen, "labels": {"a": "b"}}, "updateMask": "labels"}
    assert (await two.rest.ok("PATCH", topic, update))["frozen"] == frozen["frozen"]
    assert [text(m) for m in await two.rest.drain()] == ["before"]
    await two.rest.ok("POST", f"{topic}:unfreeze")
    await two.rest.publish("after")
    assert [text(m) for m in await two.rest.drain()] == ["after"]


async def test_dead_letters_wait_for_a_frozen_topic_and_go_there_then(two: Two) -> None:
    await two.rest.create_topic("letters")
    await two.rest.create_subscription("pile", "letters")
    await two.rest.create_subscription(deadLetterPolicy={"deadLetterTopic": two.rest.topic("letters")})
    await two.rest.ok("POST", f"{two.rest.topic('letters')}:freeze")
    await two.rest.publish("poison")
    [received] = await two.rest.pull()
    await two.rest.ok("POST", f"{two.rest.subscription()}:reject", {"ackIds": [received["ackId"]]})
    for _ in range(2):
        assert await two.brokers[1].workers["dead-letter forwarder"].run_once() == 0
    assert await two.rest.pull() == []
    await two.rest.ok("POST", f"{two.rest.topic('letters')}:unfreeze")
    [dead_letter] = await eventually(lambda: two.rest.pull("pile"))
    assert text(dead_letter) == "poison"
