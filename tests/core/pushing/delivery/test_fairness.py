"""An endpoint that hangs stops nobody else's pushes (M1)."""

from typing import Any

import pytest

from broker.core.pushing.client.http_client import Answer, Unreachable
from broker.core.pushing.slots import PushSlots
from tests.fixtures.broker import eventually
from tests.fixtures.pusher import Call, Pushing
from tests.fixtures.waiting import waiting_sessions
from tests.interleavings.steps import lock_rows, open_transaction, until_waiting


@pytest.fixture
def few_slots(pushing: Pushing) -> PushSlots:
    """Twenty, and no reserve."""
    return _set_slots(pushing, 20)


def _set_slots(pushing: Pushing, capacity: int) -> PushSlots:
    turns = pushing.broker.pusher._sender._turns
    turns._slots = pushing.broker.pusher._sender.slots = PushSlots(capacity, reserve=0)
    return turns._slots


async def _hang(pushing: Pushing, count: int) -> list[str]:
    """So many subscriptions of a project, whose endpoints never answer."""
    names = [f"hanging-{n}" for n in range(count)]
    await pushing.rest.create_topic()
    for name in names:
        await pushing.subscribe(name, f"http://far.example/{name}", ackDeadlineSeconds=600)
    await pushing.rest.publish(*[str(n) for n in range(8)])
    return names


def _answers_neighbours(call: Call) -> int | None:
    return 200 if "neighbour" in call.request.url else None


async def _neighbour(pushing: Pushing, messages: int) -> None:
    """A project that comes now, with so many messages for its endpoint."""
    rest = type(pushing.rest)(pushing.rest.client, "projects/neighbour")
    await rest.create_topic()
    await rest.create_subscription(pushConfig={"pushEndpoint": "http://far.example/neighbour"})
    await rest.publish(*[str(n) for n in range(messages)])


async def test_a_neighbour_is_pushed_to_while_another_project_hangs(
    pushing: Pushing, few_slots: PushSlots, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    pushing.far_side.answers = _answers_neighbours
    names = await _hang(pushing, 5)
    await eventually(lambda: any(e.waits_since is not None for e in pushing.endpoints.values()))
    assert 0 < few_slots.free < 10, "half of them are taken, and beyond that one each"
    await _neighbour(pushing, 30)
    await eventually(lambda: sum("neighbour" in c.request.url for c in pushing.far_side.calls) == 30)

    # Who waits is told of, and comes to his slots when the others are gone.
    await eventually(lambda: "wait for slots" in caplog.text)
    [waiting, *_] = [e for e in pushing.endpoints.values() if e.reported_no_slot]
    waiting_name = waiting.subscription.name.rsplit("/", 1)[-1]
    held = len(waiting.flights)

    async def shown() -> bool:
        status = await pushing.rest.ok("GET", f"{waiting.subscription.name}:pushStatus")
        return bool(status.get("window", 8) == held < 8 and "waitsForSlotsSince" in status)

    await eventually(shown)
    for name in names:
        if name != waiting_name:
            await pushing.rest.ok("DELETE", pushing.rest.subscription(name))
    await eventually(lambda: len(waiting.flights) == 8)
    await eventually(lambda: "have slots" in caplog.text)

    async def has_slots() -> bool:
        return "waitsForSlotsSince" not in await pushing.rest.ok("GET", f"{waiting.subscription.name}:pushStatus")

    await eventually(has_slots)
    assert "projects/p" in caplog.text
    pushing.far_side.answers = lambda _: 200
    for call in pushing.far_side.open_calls:
        call.answer(200)
    await pushing.settled(waiting_name)
    assert few_slots.taken == 0


async def test_a_neighbour_is_pushed_to_while_endpoints_of_many_projects_hang(pushing: Pushing) -> None:
    """Project names cost nothing."""
    _set_slots(pushing, 100)
    pushing.far_side.answers = _answers_neighbours
    topic = await pushing.rest.create_topic()
    for number in range(30):
        body = {"topic": topic["name"], "pushConfig": {"pushEndpoint": "http://hangs.example/"}}
        name = f"projects/greedy-{number}/subscriptions/hanging"
        await pushing.rest.ok("PUT", name, body | {"ackDeadlineSeconds": 600})
    await pushing.rest.publish(*[str(n) for n in range(8)])
    await eventually(lambda: sum(e.waits_since is not None for e in pushing.endpoints.values()) > 5)
    await _neighbour(pushing, 30)
    await eventually(lambda: sum("neighbour" in c.request.url for c in pushing.far_side.calls) == 30)


@pytest.mark.parametrize("urgent", [True, False])
async def test_where_pushes_compete_what_is_urgent_goes_first(
    pushing: Pushing, few_slots: PushSlots, urgent: bool
) -> None:
    """All of one project, and it has all its slots: whoever has one back sends his next message, but for that."""
    names = [f"bulk-{n}" for n in range(4)]
    await pushing.rest.create_topic("alarms")
    config = {"pushEndpoint": "http://far.example/alarms"}
    extensions = {"push": {"urgent": True}} if urgent else {}
    await pushing.rest.create_subscription("alarms", "alarms", pushConfig=config, extensions=extensions)
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.create_topic()
    for name in names:
        await pushing.subscribe(name, f"http://far.example/{name}", ackDeadlineSeconds=600)
    await pushing.rest.publish("all do well")
    await pushing.rest.publish("all do well", topic="alarms")
    for name in [*names, "alarms"]:
        await pushing.settled(name)
    alarm = pushing.endpoints[pushing.rest.subscription("alarms")]

    pushing.far_side.answers = lambda _: None
    await pushing.rest.publish(*[str(n) for n in range(20)])
    await eventually(lambda: sum(e.waits_since is not None for e in pushing.endpoints.values()) == 4)
    await pushing.rest.publish("fire", topic="alarms")
    await eventually(lambda: bool(alarm.waits_since and alarm.buffer))
    before = len(pushing.far_side.calls)
    pushing.far_side.open_calls[0].answer(200)
    nexts = await pushing.far_side.wait_for(before + 1)
    assert nexts[before].request.url.endswith("alarms") is urgent
    pushing.far_side.answers = lambda _: 200
    for call in pushing.far_side.open_calls:
        call.answer(200)
    for name in [*names, "alarms"]:
        await pushing.settled(name)
    assert few_slots.taken == 0


async def test_urgency_can_be_switched_on_and_off_while_messages_are_pushed(pushing: Pushing) -> None:
    pushing.far_side.answers = lambda _: 200
    await pushing.subscribe()
    endpoint = pushing.endpoint
    for number, urgent in enumerate([True, False, True]):
        body = {"extensions": {"push": {"urgent": urgent}}}
        name = pushing.rest.subscription()
        await pushing.rest.ok("PATCH", name, {"subscription": body, "updateMask": "extensions"})
        await eventually(lambda: not endpoint.suspended and endpoint.subscription.is_urgent is urgent)  # noqa: B023
        await pushing.rest.publish(str(number))
        await pushing.settled()
    assert pushing.endpoint is endpoint, "what is known of it stays known"
    assert len(pushing.far_side.calls) == 3


@pytest.mark.parametrize("trouble", ["refused", "hangs", "answers 503", "of another project"])
async def test_who_is_new_at_an_origin_in_trouble_begins_with_one_request(pushing: Pushing, trouble: str) -> None:
    """An answer is no trouble of the origin, and each project has its own knowledge."""
    await pushing.subscribe(url="http://far.example/old")
    await pushing.rest.publish(*[str(n) for n in range(30)])
    calls = await pushing.far_side.wait_for(8)
    endpoint = pushing.endpoint
    if trouble in ("refused", "answers 503"):
        for call in calls:
            outcome = Unreachable("connection refused", connected=False)
            call.outcome.set_result(outcome if trouble == "refused" else Answer(503, b"", None))
        await eventually(lambda: endpoint.health.consecutive_failures == 8)
    else:
        await eventually(lambda: bool(endpoint.reported_waiting))
    rest = pushing.rest
    if trouble == "of another project":
        rest = type(pushing.rest)(pushing.rest.client, "projects/neighbour")
        await rest.create_topic()
    await rest.create_subscription("new", pushConfig={"pushEndpoint": "http://far.example/new"})
    await eventually(lambda: rest.subscription("new") in pushing.endpoints)
    health = pushing.endpoints[rest.subscription("new")].health
    assert health.window == (1 if trouble in ("refused", "hangs") else 8)
    assert health.consecutive_failures == (8 if trouble == "refused" else 0)


async def test_what_waits_long_for_a_slot_is_given_back_and_nothing_is_claimed_meanwhile(
    pushing: Pushing, few_slots: PushSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker.core.pushing import sender

    with monkeypatch.context() as patch:
        patch.setattr(sender, "MAX_BUFFERED_SECONDS", 0.1)
        await _hang(pushing, 5)
        endpoints = list(pushing.endpoints.values())
        await eventually(lambda: any(e.waits_since is not None for e in endpoints))
        await eventually(lambda: not any(e.buffer or e.asked for e in endpoints))
    [waiting, *_] = [e for e in endpoints if e.waits_since is not None]
    assert waiting.wants(1e9) == 0
    pushing.far_side.answers = lambda _: 200
    for call in pushing.far_side.open_calls:
        call.answer(200)
    for n in range(5):
        await pushing.settled(f"hanging-{n}")
    assert few_slots.taken == 0


async def _waiting(pushing: Pushing) -> set[tuple[Any, ...]]:
    async with pushing.database.connection() as connection:
        return await waiting_sessions(connection)


async def test_acks_of_pushes_do_not_wait_for_those_of_another_project(pushing: Pushing) -> None:
    neighbour = type(pushing.rest)(pushing.rest.client, "projects/neighbour")
    await pushing.subscribe()
    await pushing.rest.publish("held")
    [call] = await pushing.far_side.wait_for(1)
    async with open_transaction(pushing.database) as locking:
        await lock_rows(locking, "delivery_attempts")
        call.answer(200)
        await until_waiting(pushing.database)
        waiting = await _waiting(pushing)
        pushing.far_side.answers = _answers_neighbours
        await neighbour.create_topic()
        await neighbour.create_subscription(pushConfig={"pushEndpoint": "http://far.example/neighbour"})
        await neighbour.publish("free")
        await pushing.far_side.wait_for(2)

        async def only_one_is_left() -> bool:
            return await pushing.rows("SELECT count(*) FROM delivery_attempts") == [(1,)]

        await eventually(only_one_is_left)
        assert await _waiting(pushing) == waiting, "the other is still the first try"
    await pushing.settled()
