"""What could make a push subscription fall asleep although it has messages (A8)."""

import asyncio
from collections.abc import Callable
from math import inf

import pytest

from broker.core.pushing import endpoint, endpoints, pauses
from broker.fairness import tenants
from broker.model.errors import Unavailable
from tests.fixtures.broker import eventually, message
from tests.fixtures.pusher import Pushing


async def test_what_waited_while_its_subscription_changed_is_sent(pushing: Pushing) -> None:
    """Its requests ended while nothing might be sent, so none of their ends starts another."""
    await pushing.subscribe()
    await pushing.warm_up()
    await pushing.rest.publish(*[str(n) for n in range(400)])
    await pushing.far_side.wait_for(8)
    await eventually(lambda: len(pushing.endpoint.buffer) > 300)
    pushing.endpoint.suspended = True
    for call in pushing.far_side.open_calls:
        call.answer(200)
    await eventually(lambda: not pushing.endpoint.flights)
    pushing.far_side.answers = lambda _: 200
    pushing.broker.pusher.resource_changed(pushing.rest.subscription())
    await pushing.settled()


async def test_an_endpoint_that_backs_off_does_not_wait_for_a_call_that_hangs(pushing: Pushing) -> None:
    breaker = {"failureThreshold": 100, "openDuration": "60s"}
    await pushing.subscribe(ackDeadlineSeconds=600, extensions={"push": {"circuitBreaker": breaker}})
    await pushing.rest.publish("hangs")
    await pushing.far_side.wait_for(1)
    refusals = iter([500] * 7)  # six at once, then one: 200 ms of backoff
    pushing.far_side.answers = lambda _: next(refusals, 200)
    await pushing.rest.publish(*[str(n) for n in range(6)])
    await eventually(lambda: set(map(str, range(6))) <= _answered(pushing))
    assert pushing.far_side.calls[0].is_open


def _answered(pushing: Pushing) -> set[str]:
    return {c.text for c in pushing.far_side.calls if c.outcome.done() and c.outcome.result().status == 200}  # type: ignore[union-attr]


async def test_a_fault_in_one_request_does_not_stop_the_others(pushing: Pushing) -> None:
    await pushing.subscribe(ackDeadlineSeconds=600, extensions={"push": {"maxOutstandingRequests": 2}})
    await pushing.rest.publish(*[str(n) for n in range(6)])
    calls = await pushing.far_side.wait_for(2)
    await pushing.broker.claiming.heads.run_once()  # would help only now and then
    pushing.far_side.answers = lambda _: 200
    for call in calls:
        call.break_down()
    await eventually(lambda: len(_answered_ok(pushing)) == 4)


def _answered_ok(pushing: Pushing) -> set[str]:
    return {call.text for call in pushing.far_side.calls[2:] if call.outcome.done()}


@pytest.mark.slow
@pytest.mark.ci
async def test_a_change_that_could_not_be_read_is_read_again_soon(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is not known what has changed nothing is sent."""
    monkeypatch.setattr(endpoints, "_READ_ALL_SECONDS", 3_600.0)  # which would help
    await pushing.subscribe()
    pushing.far_side.answers = lambda _: 200
    await eventually(lambda: not pushing.broker.pusher._endpoints._read_all)  # which would help only now and then
    monkeypatch.setattr(endpoints, "find_subscriptions", _failing_once(endpoints.find_subscriptions))
    pushing.broker.pusher.resource_changed(pushing.rest.subscription())
    await pushing.rest.publish("hello")
    await pushing.far_side.wait_for(1)


def _failing_once(function: Callable[..., object]) -> Callable[..., object]:
    failures = [Unavailable("The database is away for a moment.")]

    async def failing(*arguments: object, **named: object) -> object:
        if failures:
            raise failures.pop()
        return await function(*arguments, **named)  # type: ignore[misc]

    return failing


async def test_a_pause_that_could_not_be_written_leaves_one_endpoint_not_two(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one must not come to life again once its subscription is pushed elsewhere."""
    await pushing.subscribe()
    await pushing.rest.publish("1", "2", "3")
    calls = await pushing.far_side.wait_for(3)
    old = pushing.endpoint
    started, goes_on = asyncio.Event(), asyncio.Event()

    async def fail(*_: object, **__: object) -> None:
        started.set()
        await goes_on.wait()
        raise Unavailable("The database is away for a moment.")

    monkeypatch.setattr(pauses, "pause_pushes", fail)
    for call in calls:
        call.answer(410)
    await started.wait()
    pushing.far_side.answers = lambda _: 200
    config = {"pushConfig": {"pushEndpoint": "http://far.example/other"}}
    await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:modifyPushConfig", config)
    await eventually(lambda: pushing.endpoint is not old)
    goes_on.set()
    await pushing.settled()
    await asyncio.sleep(1.2)  # it tries again after a second
    assert old.closed


async def test_the_retry_of_a_key_is_not_forgotten_for_a_new_message_of_it(pushing: Pushing) -> None:
    """A claim that passes a fresh message of a held key has found something: it does not say what comes next."""
    policy = {"minimumBackoff": "1s", "maximumBackoff": "1s"}
    await pushing.subscribe(enableMessageOrdering=True, retryPolicy=policy, ackDeadlineSeconds=600)
    await pushing.rest.publish(message("1", orderingKey="k"))
    [call] = await pushing.far_side.wait_for(1)
    call.answer(500)
    await pushing.rest.publish(message("2", orderingKey="k"))  # while the endpoint is given a rest
    await pushing.broker.claiming.heads.run_once()  # would help only now and then
    pushing.far_side.answers = lambda _: 200
    await pushing.far_side.wait_for(3)
    assert pushing.far_side.texts == ["1", "1", "2"]


@pytest.mark.parametrize("is_contended", [False, True])  # then it has one claim at once
async def test_no_shard_of_a_topic_waits_for_all_that_is_in_another(
    database_url: str, monkeypatch: pytest.MonkeyPatch, is_contended: bool
) -> None:
    """C3: one request at a time, and two shards take turns; what was claimed ahead goes first."""
    from tests.fixtures.pusher import running_pusher

    monkeypatch.setattr(endpoint, "_MAX_AHEAD", 100)  # else two claims may bring all 900
    async with running_pusher(database_url, shards_per_topic=2) as pushing:
        if is_contended:
            monkeypatch.setattr(tenants, "LATELY_SECONDS", inf)
            for project in ("projects/p", "projects/other"):
                pushing.broker.core.tenants.note_turn(project)
        await pushing.subscribe(extensions={"push": {"maxOutstandingRequests": 1}})
        pushing.far_side.answers = lambda _: 200
        keys: dict[int, str] = {}
        for n in range(20):
            await pushing.rest.publish(message("key", orderingKey=f"k{n}"))
            rows = await pushing.rows("SELECT shard_id FROM messages ORDER BY publish_time DESC LIMIT 1")
            keys.setdefault(rows[0][0], f"k{n}")
        await pushing.settled()
        first, second = keys.values()
        for busy, quiet in ((first, second), (second, first)):
            pushing.far_side.calls.clear()
            pushing.far_side.answers = lambda _: None
            await pushing.rest.publish(*[message("busy", orderingKey=busy) for _ in range(900)])
            await pushing.far_side.wait_for(1)
            await pushing.rest.publish(message("quiet", orderingKey=quiet))
            pushing.far_side.answers = lambda _: 200
            pushing.far_side.calls[0].answer(200)
            await pushing.settled()
            assert pushing.far_side.texts.index("quiet") < 850
