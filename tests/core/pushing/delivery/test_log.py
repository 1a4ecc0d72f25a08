"""What the log says about push endpoints: when they fail and recover, which messages keep failing, and pauses."""

from datetime import timedelta

import pytest

from broker.core.catalog.push_state_rows import read_push_states
from broker.core.pushing.health import failing_watch
from broker.model.push_state import FailureRun
from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import Json, eventually
from tests.fixtures.pusher import Pushing, running_pusher

_URL = "https://far.example:8443/hooks/SECRET?token=SECRET"
_BREAKER = {"push": {"circuitBreaker": {"failureThreshold": 2, "openDuration": "1s"}}}
_PUSHES = "pushes of projects/p/subscriptions/sub"


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert "SECRET" not in caplog.text
    return [f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == "broker.state"]


async def _reported(pushing: Pushing) -> FailureRun:
    """The failures of the endpoint, once they are stored as reported."""

    async def stored() -> FailureRun | None:
        async with pushing.database.transaction() as connection:
            states = await read_push_states(connection, subscription_ids=[pushing.endpoint.subscription_id])
        run = next((state.failures for state in states.values()), None)
        return run if run is not None and run.is_reported else None

    run: FailureRun = await eventually(stored)
    return run


async def _status(pushing: Pushing) -> Json:
    found: Json = await pushing.rest.ok("GET", f"{pushing.rest.subscription()}:pushStatus")
    return found


async def test_an_endpoint_that_fails_is_logged_once_and_once_when_it_has_recovered(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL, extensions=_BREAKER)
        pushing.far_side.answers = lambda _: 503
        await pushing.rest.publish("a", "b", "c")
        await pushing.far_side.wait_for(5)  # the breaker has opened more than once
        failing = _said(caplog)
        pushing.far_side.answers = lambda _: 200
        await pushing.settled()
        await eventually(lambda: len(_said(caplog)) == 2)
    assert len(failing) == 1
    assert failing[0].startswith(f"WARNING {_PUSHES} to https://far.example:8443 fail")
    assert "1 request has failed without a success; the last one: status 503 (Service Unavailable)" in failing[0]
    assert _said(caplog)[1].startswith(f"INFO {_PUSHES} to https://far.example:8443 work again, after ")


async def test_an_endpoint_whose_backlog_is_purged_fails_no_longer(
    database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing_watch, "GONE_AFTER", timedelta(seconds=0.5))
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL, extensions=_BREAKER)
        pushing.far_side.answers = lambda _: 503
        await pushing.rest.publish("a", "b", "c")
        await _reported(pushing)
        assert (await _status(pushing))["state"] == "FAILING"
        await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:purge", {})

        async def is_over() -> bool:
            return (await _status(pushing))["state"] == "ACTIVE"

        await eventually(is_over)
        pushing.far_side.answers = lambda _: 200
        await pushing.rest.publish("d")
        await pushing.settled()
    failing, over = _said(caplog)
    assert failing.startswith(f"WARNING {_PUSHES} to https://far.example:8443 fail")
    assert over.startswith(
        f"INFO {_PUSHES} to https://far.example:8443 fail no longer: nothing is left to push, after "
    )


async def test_an_endpoint_that_is_replaced_while_it_fails_ends_its_failure_in_the_log(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL)
        pushing.far_side.answers = lambda _: 503
        await pushing.rest.publish("a")
        await _reported(pushing)
        config = {"pushConfig": {"pushEndpoint": "https://near.example/hooks"}}
        await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:modifyPushConfig", config)
        await eventually(lambda: len(_said(caplog)) >= 2)
    attribution = (
        f"INFO {_PUSHES} to https://far.example:8443 fail no longer: they go to https://near.example now, after "
    )
    assert _said(caplog)[1].startswith(attribution)


async def test_an_endpoint_that_gets_no_more_requests_is_reported_when_it_is_time(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has asked to be left alone for an hour: no answer comes that could be noticed."""
    async with running_pusher(database_url, push_failing_after=1.0) as pushing:
        await pushing.subscribe(url=_URL)
        await pushing.rest.publish("a")
        [call] = await pushing.far_side.wait_for(1)
        call.answer(503, retry_after=3_600)
        run = await _reported(pushing)
        assert run.requests == len(pushing.far_side.calls) == 1
    [line] = _said(caplog)
    assert line.startswith(f"WARNING {_PUSHES} to https://far.example:8443 fail, since ")
    assert "; the next attempt is at 2" in line


async def test_the_next_attempt_is_when_a_message_is_due_again_by_its_retry_policy(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    policy = {"retryPolicy": {"minimumBackoff": "600s", "maximumBackoff": "600s"}}
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL, **policy)
        pushing.far_side.answers = lambda _: 503
        await pushing.rest.publish("a")
        run = await _reported(pushing)
        status = await pushing.rest.ok("GET", f"{pushing.rest.subscription()}:pushStatus")
    retry_at = format_timestamp(run.since + timedelta(seconds=600))
    assert retry_at <= status["retryTime"] == status["endpointFailure"]["retryTime"]
    assert f"the next attempt is at {status['retryTime']}" in _said(caplog)[0]


async def test_an_endpoint_that_hangs_fails_since_the_request_was_sent(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_pusher(database_url, push_failing_after=1.0) as pushing:
        await pushing.subscribe(url=_URL)
        await pushing.shorten_ack_deadlines(1)
        await pushing.rest.publish("a")
        assert (await _reported(pushing)).reason == "no answer within 1 seconds"
    [line] = _said(caplog)
    assert "the last one: no answer within 1 seconds" in line


async def test_failures_go_on_when_another_process_delivers_and_so_does_their_report(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL)
        pushing.far_side.answers = lambda _: 400
        await pushing.rest.publish("a")
        before = await _reported(pushing)
    async with running_pusher(database_url, push_failing_after=3_600.0) as pushing:
        await eventually(lambda: pushing.endpoints)
        assert pushing.endpoint.failing.run is not None
        assert pushing.endpoint.failing.run.since == before.since
        pushing.far_side.answers = lambda _: 200
        await pushing.settled()
        await eventually(lambda: "work again" in _said(caplog)[-1])
        assert pushing.endpoint.failing.run is None
    levels = [line.split()[0] for line in _said(caplog)]
    assert levels == ["WARNING", "WARNING", "INFO"]  # once by each process


async def test_an_endpoint_of_its_own_url_has_no_failures_of_the_one_before_it(database_url: str) -> None:
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL)
        pushing.far_side.answers = lambda _: 400
        await pushing.rest.publish("a")
        await _reported(pushing)
        await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:pausePush")
        config = {"pushConfig": {"pushEndpoint": "https://other.example/"}}
        await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:modifyPushConfig", config)
        pushing.far_side.answers = lambda _: 200
        await pushing.settled()
        assert "endpointFailure" not in await pushing.rest.ok("GET", f"{pushing.rest.subscription()}:pushStatus")


async def test_a_message_that_fails_while_others_are_delivered_is_logged_by_its_id(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, push_failing_after=0.0) as pushing:
        await pushing.subscribe(url=_URL)
        poison, _ = await pushing.rest.publish("poison", "healthy")
        await pushing.far_side.wait_for(2)
        [first] = [call for call in pushing.far_side.calls if call.text == "poison"]
        [healthy] = [call for call in pushing.far_side.calls if call.text == "healthy"]
        first.answer(409)
        await eventually(lambda: pushing.endpoint.failing.run)
        healthy.answer(200)
        await eventually(lambda: not pushing.endpoint.failing.run)
        caplog.clear()
        for count in (3, 4):
            calls = await pushing.far_side.wait_for(count)
            calls[-1].answer(409)
        [last, *_] = (await pushing.far_side.wait_for(5))[4:]
        [failing] = _said(caplog)
        last.answer(200)
        await pushing.settled()
        await eventually(lambda: len(_said(caplog)) == 2)
    assert failing.startswith(f"WARNING pushes of message {poison} of projects/p/subscriptions/sub fail")
    assert failing.endswith("the last one: status 409 (Conflict)")
    assert _said(caplog)[1].startswith(
        f"INFO message {poison} of projects/p/subscriptions/sub is delivered, after "
    )


async def test_a_pause_is_told_with_its_reason_and_its_end_whoever_began_it(
    pushing: Pushing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    await pushing.subscribe(url=_URL)
    pushing.far_side.answers = lambda _: 410
    await pushing.rest.publish("a", "b", "c")
    await eventually(lambda: len(_said(caplog)) == 1)
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:resumePush")
    await eventually(lambda: len(_said(caplog)) == 2)
    await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:pausePush", {"reason": "a\nbreak"})
    await eventually(lambda: len(_said(caplog)) == 3)
    gone, resumed, called = _said(caplog)
    paused = f"WARNING {_PUSHES} are paused until resumed"
    why = "Gone: the endpoint (https://far.example:8443) answered 3 messages with 410, and accepted none in between"
    assert gone == f"{paused}: {why}"
    assert resumed.startswith(f"INFO {_PUSHES} are resumed, after ")
    assert called == f"{paused}: a\nbreak"
    await pushing.rest.ok("DELETE", pushing.rest.subscription())
    await eventually(
        lambda: not pushing.broker.core.states.lasts("paused push subscriptions", pushing.rest.subscription())
    )
    assert len(_said(caplog)) == 3
