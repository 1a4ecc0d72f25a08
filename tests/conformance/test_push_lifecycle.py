"""What Google's service promises while a push subscription changes: switching, seeking, deleting, filtering.

As https://cloud.google.com/pubsub/docs/push and https://cloud.google.com/pubsub/docs/replay-overview say;
docs/compared-with-the-emulator.md has what the emulator does instead.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.fixtures.broker import Json, message, sent_again, text
from tests.fixtures.pushes import Pushes, pushed, side_by_side

pytestmark = pytest.mark.asyncio(loop_scope="module")

A_WHILE = 2.5  # seconds in which whatever is still pushed would show: retries after few failures come within one


def at(moment: datetime) -> Json:
    return {"time": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


async def seek(pushes: Pushes, target: Json, name: str = "sub") -> None:
    await pushes.rest.ok("POST", f"{pushes.rest.subscription(name)}:seek", target)


def numbers(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


# --- filters ----------------------------------------------------------------------------------------------


@side_by_side
async def test_only_what_the_filter_matches_is_pushed(pushes: Pushes) -> None:
    """A3, A8: the rest counts as acknowledged; a sibling has everything."""
    filtered = await pushes.subscribe(filter='attributes.env = "prod" AND NOT attributes:test')
    everything = await pushes.subscribe(name="everything")
    for n in range(10):
        await pushes.rest.publish(
            message(f"no{n}", {"env": "dev"}), message(f"test{n}", {"env": "prod", "test": ""})
        )
        await pushes.rest.publish(message(f"yes{n}", {"env": "prod"}), f"plain{n}")
    assert sorted(await pushes.texts(filtered, 10)) == numbers(10, "yes")
    assert len(set(await pushes.texts(everything, 40))) == 40
    await pushes.modify({})
    assert await pushes.rest.pull() == []


# --- pull and push ----------------------------------------------------------------------------------------


@side_by_side
async def test_the_backlog_of_a_pull_subscription_is_pushed_once_it_has_an_endpoint(pushes: Pushes) -> None:
    """A8: each message once."""
    await pushes.rest.create_subscription()
    await pushes.rest.publish(*numbers(300))
    path = pushes.path()
    await pushes.push_to(path)
    await pushes.rest.publish("last")
    await pushes.wait_for(path, 301, ended=True)
    requests = await pushes.settled(path, 301, seconds=0.5)
    assert {pushed(request) for request in requests} == {*numbers(300), "last"}


@side_by_side
async def test_what_could_not_be_pushed_is_pulled_once_the_endpoint_is_gone(pushes: Pushes) -> None:
    """A8: pushing pauses, the backlog stays."""
    path = await pushes.subscribe("/status/500")
    await pushes.rest.publish(*numbers(50))
    await pushes.wait_for(path, 3)
    await pushes.modify({})
    await pushes.rest.publish("later")
    found: set[str] = set()
    while found != {*numbers(50), "later"}:
        received = await pushes.rest.pull(wait=True)
        assert received
        await pushes.rest.acknowledge(received)
        texts = [text(m) for m in received]
        assert not found & set(texts)
        found |= set(texts)
    await pushes.wait_for(path, 3, ended=True)
    count = len(await pushes.sink.requests(path))
    await pushes.settled(path, count, seconds=A_WHILE)


@pytest.mark.slow
@pytest.mark.ci
@side_by_side
async def test_a_request_in_flight_at_the_switch_to_pull_still_counts(pushes: Pushes) -> None:
    """A8: its success acknowledges, its failure does not."""
    gate = pushes.path("")[1:]
    path = await pushes.subscribe(f"/gate/{gate}", name="good")
    bad = await pushes.subscribe("/delay/1", name="bad")
    await pushes.sink.program(bad, "/hang")
    await pushes.rest.publish("in flight")
    await pushes.wait_for(path, 1)
    await pushes.modify({}, "good")
    assert await pushes.rest.pull("good") == [], "it is out"
    await pushes.sink.open_gate(gate)
    await pushes.wait_for(path, 1, ended=True)
    await pushes.rest.publish("later")
    received = await pushes.rest.pull("good", wait=True)
    assert [text(m) for m in received] == ["later"]
    await pushes.rest.acknowledge(received, "good")
    await asyncio.sleep(11)  # its ack deadline
    assert await pushes.rest.pull("good") == []


@side_by_side
async def test_what_hangs_at_the_switch_to_pull_is_pulled_after_its_deadline(pushes: Pushes) -> None:
    """A8: nothing is lost with the endpoint."""
    path = await pushes.subscribe("/hang", ackDeadlineSeconds=10)
    await pushes.rest.publish("x")
    await pushes.wait_for(path, 1)
    await pushes.modify({})
    assert [text(m) for m in await pushes.rest.pull(wait=True)] == ["x"]
    assert len(await pushes.sink.requests(path)) == 1


@side_by_side
async def test_switching_again_and_again_under_load_loses_and_doubles_nothing(pushes: Pushes) -> None:
    """A8: pull and push share one backlog."""
    path = await pushes.subscribe(ackDeadlineSeconds=600)
    pulled: list[str] = []
    published: list[str] = []
    done = asyncio.Event()

    async def publish() -> None:
        for n in range(60):
            published.extend(batch := numbers(10, f"{n}-"))
            await pushes.rest.publish(*batch)
            await asyncio.sleep(0.02)
        done.set()

    async def pull() -> None:
        call = "POST", f"{pushes.rest.subscription()}:pull", {"maxMessages": 50, "returnImmediately": True}
        while not done.is_set():
            response = await sent_again(lambda: pushes.rest.call(*call))
            received = response.json().get("receivedMessages", [])
            assert response.status_code == 200 or response.json()["error"]["status"] == "FAILED_PRECONDITION"
            if received:
                await pushes.rest.acknowledge(received)
                pulled.extend(text(m) for m in received)
            await asyncio.sleep(0.01)

    async def switch() -> None:
        while not done.is_set():
            await pushes.modify({})
            await asyncio.sleep(0.05)
            await pushes.push_to(path)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        for role in (publish, pull, switch):
            group.create_task(role())
    await pushes.push_to(path)
    arrived = [pushed(r) for r in await pushes.wait_for(path, 600 - len(pulled), ended=True)]
    await pushes.settled(path, 600 - len(pulled), seconds=0.5)
    assert pulled, "the test is to switch while messages flow"
    assert arrived
    assert sorted(arrived + pulled) == sorted(published)


@side_by_side
async def test_another_endpoint_gets_the_backlog_of_the_first(pushes: Pushes) -> None:
    """A8: at once, without waiting for the backoff of the other."""
    first = await pushes.subscribe("/status/500")
    await pushes.rest.publish(*numbers(40))
    await pushes.wait_for(first, 6)
    second = pushes.path()
    await pushes.push_to(second)
    assert sorted(set(await pushes.texts(second, 40))) == sorted(numbers(40))
    await pushes.settled(second, 40, seconds=0.5)
    count = len(await pushes.sink.requests(first))
    await pushes.settled(first, count, seconds=A_WHILE)


@side_by_side
async def test_a_pull_that_waits_is_refused_when_an_endpoint_is_set(pushes: Pushes) -> None:
    """A8: the emulator steals the message from push."""
    await pushes.rest.create_subscription()
    body = {"maxMessages": 1}
    waiting = asyncio.create_task(pushes.rest.error("POST", f"{pushes.rest.subscription()}:pull", body))
    await asyncio.sleep(0.5)
    path = pushes.path()
    await pushes.push_to(path)
    await pushes.rest.publish("x")
    assert await pushes.texts(path, 1) == ["x"]
    assert (await waiting)[0] == "FAILED_PRECONDITION"
    assert (await pushes.rest.error("POST", f"{pushes.rest.subscription()}:pull", body))[0] == "FAILED_PRECONDITION"


@side_by_side
async def test_push_and_exactly_once_delivery_are_refused_together(pushes: Pushes) -> None:
    """A8: whichever is set last."""
    config = {"pushConfig": {"pushEndpoint": pushes.sink.url + pushes.path()}}
    once = {"enableExactlyOnceDelivery": True}
    new = {"topic": pushes.rest.topic(), **config, **once}
    refused = [await pushes.rest.error("PUT", pushes.rest.subscription("new"), new)]
    await pushes.rest.create_subscription("once", **once)
    refused.append(await pushes.rest.error("POST", f"{pushes.rest.subscription('once')}:modifyPushConfig", config))
    await pushes.rest.create_subscription("push", **config)
    body = {"subscription": once, "updateMask": "enableExactlyOnceDelivery"}
    refused.append(await pushes.rest.error("PATCH", pushes.rest.subscription("push"), body))
    assert [code for code, _ in refused] == ["INVALID_ARGUMENT"] * 3


# --- the end ----------------------------------------------------------------------------------------------


@side_by_side
async def test_deleting_or_detaching_a_subscription_ends_its_pushes(pushes: Pushes) -> None:
    """A8: also of what failed and would be tried again."""
    paths = [await pushes.subscribe("/status/500", name=name) for name in ("deleted", "detached")]
    await pushes.rest.publish(*numbers(20))
    for path in paths:
        await pushes.wait_for(path, 3, ended=True)
    await pushes.rest.ok("DELETE", pushes.rest.subscription("deleted"))
    await pushes.rest.ok("POST", f"{pushes.rest.subscription('detached')}:detach")
    await pushes.rest.publish("later")
    counts = [len(await pushes.sink.requests(path)) for path in paths]
    await asyncio.sleep(A_WHILE)
    for path, count in zip(paths, counts, strict=True):
        requests = await pushes.sink.requests(path)
        assert len(requests) <= count + 2, "but for what was on its way"
        assert "later" not in {pushed(r) for r in requests}


@side_by_side
async def test_what_a_deleted_topic_left_behind_is_still_pushed(pushes: Pushes) -> None:
    """A8: and a new topic of that name has nothing to do with it."""
    path = await pushes.subscribe(*["/status/500"] * 4, "/status/200")
    await pushes.rest.publish(*numbers(3))
    await pushes.wait_for(path, 1)
    await pushes.rest.ok("DELETE", pushes.rest.topic())
    await pushes.rest.create_topic()
    await pushes.rest.publish("of another topic")
    await pushes.until_taken(path, *numbers(3))
    assert (await pushes.rest.ok("GET", pushes.rest.subscription()))["topic"] == "_deleted-topic_"
    assert "of another topic" not in await pushes.texts(path)


@side_by_side
async def test_a_subscription_created_again_has_nothing_of_its_namesake(pushes: Pushes) -> None:
    """A8: neither its backlog, nor its endpoint, nor what came between."""
    first = await pushes.subscribe("/status/500")
    await pushes.rest.publish(*numbers(20, "old"))
    await pushes.wait_for(first, 3, ended=True)
    await pushes.rest.ok("DELETE", pushes.rest.subscription())
    await pushes.rest.publish("between")
    second = await pushes.subscribe()
    await pushes.rest.publish("new")
    assert await pushes.texts(second, 1) == ["new"]
    count = len(await pushes.sink.requests(first))
    await asyncio.sleep(A_WHILE)
    assert await pushes.texts(second) == ["new"]
    assert len(await pushes.sink.requests(first)) <= count + 1


# --- seek and snapshots -----------------------------------------------------------------------------------


@side_by_side
async def test_seeking_back_pushes_again_what_is_retained(pushes: Pushes) -> None:
    """A9: and what is not retained is not."""
    start = datetime.now(UTC) - timedelta(minutes=1)
    retaining = await pushes.subscribe(retainAckedMessages=True)
    forgetting = await pushes.subscribe(name="forgetting")
    await pushes.rest.publish(*numbers(20))
    for path in (retaining, forgetting):
        await pushes.wait_for(path, 20, ended=True)
    await asyncio.sleep(0.5)  # until the successes are acks
    await seek(pushes, at(start))
    await seek(pushes, at(start), "forgetting")
    await pushes.rest.publish("marker")
    again = [pushed(r) for r in await pushes.wait_for(retaining, 41)]
    assert sorted(again) == sorted([*numbers(20) * 2, "marker"])
    await pushes.until_taken(forgetting, "marker")
    assert len(await pushes.sink.requests(forgetting)) == 21


@side_by_side
async def test_seeking_to_the_future_pushes_nothing_of_the_past(pushes: Pushes) -> None:
    """A9: also what is being retried; what comes later is pushed."""
    path = await pushes.subscribe("/status/500")
    await pushes.rest.publish(*numbers(20))
    await pushes.wait_for(path, 4, ended=True)
    await seek(pushes, at(datetime.now(UTC) + timedelta(seconds=0.2)))
    await asyncio.sleep(0.5)
    count = len(await pushes.sink.requests(path))
    await pushes.sink.program(path, "/status/200")
    await pushes.rest.publish("later")
    await pushes.until_taken(path, "later")
    await asyncio.sleep(A_WHILE)
    assert [pushed(r) for r in (await pushes.sink.requests(path))[count:]] == ["later"]


@side_by_side
async def test_seeking_to_the_future_also_ends_what_is_in_flight(pushes: Pushes) -> None:
    """A9: a request that fails after it was sought past is not repeated."""
    path = await pushes.subscribe("/hang", "/status/200", ackDeadlineSeconds=10)
    await pushes.rest.publish("x")
    await pushes.wait_for(path, 1)
    await seek(pushes, at(datetime.now(UTC)))
    await pushes.settled(path, 1, seconds=10 + A_WHILE)
    await pushes.rest.publish("later")
    assert (await pushes.texts(path, 2)) == ["x", "later"]


@side_by_side
async def test_an_answer_to_a_deleted_subscription_acknowledges_nothing_of_its_namesake(pushes: Pushes) -> None:
    """A8: nor does its failure count."""
    gate = pushes.path("")[1:]
    path = await pushes.subscribe(f"/gate/{gate}", name="same")
    await pushes.rest.publish(*numbers(3, "old"))
    await pushes.wait_for(path, 1)
    await pushes.rest.ok("DELETE", pushes.rest.subscription("same"))
    again = await pushes.subscribe("/status/500", name="same")
    await pushes.rest.publish(*numbers(3, "new"))
    await pushes.wait_for(again, 3)
    await pushes.sink.open_gate(gate)
    await pushes.sink.program(again, "/status/200")
    await pushes.until_taken(again, *numbers(3, "new"))
    assert not [t for t in await pushes.texts(again) if t.startswith("old")]


@side_by_side
async def test_seeking_to_a_snapshot_pushes_what_it_holds(pushes: Pushes) -> None:
    """A9: what was not acknowledged when it was made, and all that came later; as often as it is sought."""
    await pushes.rest.create_subscription()
    await pushes.rest.publish("acked", "held", "held too")
    received = await pushes.rest.pull()
    await pushes.rest.acknowledge([m for m in received if text(m) == "acked"])
    snapshot = f"{pushes.rest.project}/snapshots/snap"
    await pushes.rest.ok("PUT", snapshot, {"subscription": pushes.rest.subscription()})
    await pushes.rest.acknowledge([m for m in received if text(m) != "acked"])
    path = pushes.path()
    await pushes.push_to(path)
    await pushes.rest.publish("later")
    await pushes.wait_for(path, 1, ended=True)
    for round_ in (1, 2):
        await asyncio.sleep(0.5)  # until the successes are acks
        await seek(pushes, {"snapshot": snapshot})
        texts = await pushes.texts(path, 1 + 3 * round_)
        assert sorted(texts[-3:]) == ["held", "held too", "later"]
