"""The endpoints of a process follow the push subscriptions in the database (A8, C8)."""

import asyncio

import pytest

from broker.core.pushing import sender
from tests.fixtures.broker import eventually, message
from tests.fixtures.pusher import Pushing


async def test_an_endpoint_comes_and_goes_with_its_subscription(pushing: Pushing) -> None:
    await pushing.subscribe()
    old, claims = pushing.endpoint, pushing.broker.claiming.pushes
    [scheduled] = claims._scheduled.values()
    await pushing.rest.ok("DELETE", pushing.rest.subscription())
    await eventually(lambda: not pushing.endpoints)
    assert old.closed
    assert scheduled.alarm is None or scheduled.alarm.cancelled()
    assert not claims.watched_shards(), "nobody's shard is not watched"


async def test_a_change_that_nobody_told_of_is_seen_when_the_connection_is_made_anew(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.execute(
        """UPDATE subscriptions SET settings = '{"pushConfig": {"pushEndpoint": "http://far.example/new"}}'"""
    )
    await pushing.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    )
    await eventually(lambda: pushing.endpoint.subscription.push_config.endpoint.endswith("/new"))
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.publish("hello")
    [call] = await pushing.far_side.wait_for(1)
    assert call.request.url.endswith("/new")


async def _push_elsewhere(pushing: Pushing, url: str = "http://far.example/new") -> None:
    old = pushing.endpoint
    config = {"pushConfig": {"pushEndpoint": url}}
    await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:modifyPushConfig", config)
    await eventually(lambda: pushing.endpoint is not old)


async def test_another_url_is_another_endpoint_and_what_is_out_may_still_succeed(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.rest.publish("1")
    [call] = await pushing.far_side.wait_for(1)
    old = pushing.endpoint
    await _push_elsewhere(pushing)
    assert (old.bytes_held, len(old.flights), old.health.outstanding) == (0, 0, 0)
    assert pushing.broker.pusher._sender.slots.taken == 0, "it holds no slot"
    call.answer(200)
    await pushing.settled()
    assert len(pushing.far_side.calls) == 1


@pytest.fixture
def no_time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "LEAVING_SECONDS", 0.0)


@pytest.mark.usefixtures("no_time_to_leave")
async def test_what_hangs_at_an_endpoint_that_is_gone_goes_to_the_next_in_the_order_of_its_key(
    pushing: Pushing,
) -> None:
    """Not only when its ack deadline has passed."""
    await pushing.subscribe(enableMessageOrdering=True, ackDeadlineSeconds=600)
    await pushing.rest.publish(*[message(text, orderingKey="k") for text in "123"])
    [hanging] = await pushing.far_side.wait_for(1)
    await _push_elsewhere(pushing)
    await eventually(lambda: hanging.ended)
    pushing.far_side.answers = lambda _: 200
    for call in pushing.far_side.open_calls:
        call.answer(200)
    await pushing.settled()
    assert pushing.far_side.texts == ["1", "1", "2", "3"]


@pytest.mark.usefixtures("no_time_to_leave")
@pytest.mark.parametrize("end", ["deleted", "pulled", "paused and deleted"])
async def test_whatever_ends_an_endpoint_ends_its_requests(pushing: Pushing, end: str) -> None:
    await pushing.subscribe(ackDeadlineSeconds=600)
    await pushing.rest.publish("1", "2")
    calls = await pushing.far_side.wait_for(2)
    name = pushing.rest.subscription()
    if end == "pulled":
        await pushing.rest.ok("POST", f"{name}:modifyPushConfig", {"pushConfig": {}})
        assert len(await pushing.rest.pull(wait=True)) > 0, "they are due, long before their ack deadline"
    if end == "paused and deleted":
        await pushing.rest.ok("POST", f"{name}:pausePush")
        await eventually(lambda: not pushing.endpoints)
        await asyncio.sleep(0)
        assert not any(call.ended for call in calls), "a pause ends nothing that is out"
    if end != "pulled":
        await pushing.rest.ok("DELETE", name)
    await eventually(lambda: all(call.ended for call in calls))
    assert pushing.broker.pusher._sender.slots.taken == 0
    assert not pushing.broker.pusher._endpoints._awaited


async def test_a_config_that_is_changed_again_and_again_holds_no_slots(pushing: Pushing) -> None:
    """Each change made room for as many requests as a new endpoint may have."""
    await pushing.subscribe(ackDeadlineSeconds=600)
    await pushing.rest.publish(*[str(n) for n in range(100)])
    for n in range(5):
        await eventually(lambda: pushing.endpoint.flights)
        await _push_elsewhere(pushing, f"http://far.example/{n}")
    endpoint = pushing.endpoint
    assert pushing.broker.pusher._sender.slots.taken == len(endpoint.flights) <= 8


async def test_of_endpoints_that_are_gone_few_calls_stay_open(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_MAX_LEAVING", 3)
    monkeypatch.setattr(sender, "LEAVING_SECONDS", 600.0)
    await pushing.subscribe(ackDeadlineSeconds=600)
    await pushing.rest.publish(*[str(n) for n in range(8)])
    await pushing.far_side.wait_for(8)
    calls = list(pushing.far_side.calls)
    await _push_elsewhere(pushing)
    await eventually(lambda: sum(call.ended for call in calls) == 5)
    assert [call.ended for call in calls] == [True] * 5 + [False] * 3


async def test_what_was_claimed_and_not_sent_is_given_back_when_the_endpoint_goes(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.warm_up()
    await pushing.rest.publish(*[str(n) for n in range(300)])
    await eventually(lambda: len(pushing.endpoint.buffer) > 100 and pushing.far_side.open_calls)
    old = pushing.endpoint
    pushing.broker.pusher._endpoints._remove(old)
    out = {call.text for call in pushing.far_side.open_calls}
    pushing.far_side.answers = lambda _: 200
    pushing.broker.pusher.resource_changed(old.subscription.name)
    await pushing.far_side.wait_for(300)
    for call in pushing.far_side.open_calls:
        call.answer(200)
    await pushing.settled()
    assert sorted(pushing.far_side.texts) == sorted(str(n) for n in range(300)), "none twice"
    assert {call.body.get("deliveryAttempt") for call in pushing.far_side.calls} == {None}
    assert old.bytes_held == 0
    assert out


async def test_everything_is_given_back_by_the_books_when_all_is_settled(pushing: Pushing) -> None:
    """Bytes, slots and push batches, whatever became of the messages."""
    digest = {"maxMessages": 5, "maxDelay": "0.1s"}
    await pushing.subscribe()
    await pushing.subscribe("digest", "http://far.example/digest", extensions={"push": {"digest": digest}})
    statuses = iter([200, 500, 503, 200, 200, 404])
    pushing.far_side.answers = lambda _: next(statuses, 200)
    await pushing.rest.publish(*[str(n) for n in range(60)])
    await pushing.settled()
    await pushing.settled("digest")
    endpoints = pushing.endpoints.values()
    await eventually(lambda: not any(endpoint.asked for endpoint in endpoints))  # a claim may be under way
    for endpoint in endpoints:
        assert (endpoint.bytes_held, len(endpoint.buffer), len(endpoint.flights)) == (0, 0, 0)
        assert endpoint.health.outstanding == 0
    sender = pushing.broker.pusher._sender
    assert (sender.slots.taken, len(sender._running)) == (0, 0)
