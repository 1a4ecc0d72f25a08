"""What the log says of endpoints: one line when pushes fail and one when they work again; and of pauses."""

import pytest

from tests.fixtures.broker import eventually
from tests.fixtures.pusher import Pushing

_URL = "https://far.example:8443/hooks/SECRET?token=SECRET"
_BREAKER = {"push": {"circuitBreaker": {"failureThreshold": 2, "openDuration": "1s"}}}
_PUSHES = "pushes of projects/p/subscriptions/sub"


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert "SECRET" not in caplog.text
    return [f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == "broker.state"]


async def test_an_endpoint_that_fails_is_told_of_once_and_once_when_it_works_again(
    pushing: Pushing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
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
    assert (
        failing[0].endswith(": status 503 (2 failures in a row); tried again every 1 s") or "3 fail" in failing[0]
    )
    assert _said(caplog)[1].startswith(f"INFO {_PUSHES} to https://far.example:8443 work again, after ")


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
    paused = f"WARNING {_PUSHES} are paused, until :resume"
    assert gone == f"{paused}: The endpoint (https://far.example:8443) answered 410 (Gone)"
    assert resumed.startswith(f"INFO {_PUSHES} are resumed, after ")
    assert called == f"{paused}: a\nbreak"
    await pushing.rest.ok("DELETE", pushing.rest.subscription())
    await eventually(
        lambda: not pushing.broker.states.lasts("paused push subscriptions", pushing.rest.subscription())
    )
    assert len(_said(caplog)) == 3
