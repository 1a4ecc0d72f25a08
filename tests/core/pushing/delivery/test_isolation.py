"""A message that always fails delays no other, and an outage nothing that comes after it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.broker import eventually, message
from tests.fixtures.pusher import Call, Pushing


def _is_poison(call: Call) -> bool:
    return call.text.startswith("poison")


def _failing(status: int | None) -> Callable[[Call], int | None]:
    """Poison gets this status (None: no answer), everything else succeeds."""
    return lambda call: status if _is_poison(call) else 200


def _delivered(pushing: Pushing) -> set[str]:
    done = (call for call in pushing.far_side.calls if call.outcome.done() and not call.outcome.cancelled())
    return {call.text for call in done if getattr(call.outcome.result(), "status", None) == 200}


async def _until_delivered(pushing: Pushing, count: int) -> None:
    """A busy machine takes its time: a request is stuck only after many times the mean latency."""
    await eventually(lambda: len(_delivered(pushing)) == count, seconds=100)


def _mixed(healthy: int, poison: int) -> list[str]:
    """In turns, the poison first."""
    texts = [f"healthy {n}" for n in range(healthy)]
    for n in range(poison):
        texts.insert(n * (healthy // poison + 1), f"poison {n}")
    return texts


@pytest.mark.parametrize("status", [400, 410, 422, 500, 503, None])
@pytest.mark.parametrize(("healthy", "poison"), [(280, 1), (180, 20), (150, 150)])
async def test_healthy_messages_are_delivered_beside_such_as_always_fail(
    pushing: Pushing, status: int | None, healthy: int, poison: int
) -> None:
    await pushing.subscribe(ackDeadlineSeconds=600)
    pushing.far_side.answers = _failing(status)
    await pushing.rest.publish(*_mixed(healthy, poison))
    await _until_delivered(pushing, healthy)
    assert pushing.endpoint.health.breaker == "closed"
    assert not pushing.endpoint.closed, "one message's 410 says nothing of the endpoint"


async def test_poison_on_an_ordering_key_holds_up_its_key_alone(pushing: Pushing) -> None:
    await pushing.subscribe(enableMessageOrdering=True)
    pushing.far_side.answers = _failing(400)
    await pushing.rest.publish(message("poison", orderingKey="bad"), message("behind it", orderingKey="bad"))
    for key in range(10):
        await pushing.rest.publish(*[message(f"{key}/{n}", orderingKey=f"k{key}") for n in range(3)])
    await _until_delivered(pushing, 30)
    assert "behind it" not in pushing.far_side.texts
    delivered = [text for text in pushing.far_side.texts if "/" in text]
    assert all([t for t in delivered if t.startswith(f"{k}/")] == [f"{k}/{n}" for n in range(3)] for k in range(10))


async def test_poison_becomes_a_dead_letter_while_the_others_are_delivered(pushing: Pushing) -> None:
    dead = f"{pushing.rest.project}/topics/dead"
    await pushing.rest.create_topic("dead")
    policy = {"deadLetterTopic": dead, "maxDeliveryAttempts": 5}
    await pushing.subscribe(deadLetterPolicy=policy)
    await pushing.rest.create_subscription("letters", "dead")
    pushing.far_side.answers = _failing(500)
    await pushing.rest.publish(*_mixed(90, 10))
    await pushing.settled()
    assert len(_delivered(pushing)) == 90
    assert await pushing.rest.backlog("letters") == 10
    tries = [call.text for call in pushing.far_side.calls if _is_poison(call)]
    assert all(tries.count(f"poison {n}") == 5 for n in range(10))


async def test_a_digest_with_a_message_that_is_rejected_gets_smaller_until_the_others_are_through(
    pushing: Pushing,
) -> None:
    digest = {"maxMessages": 16, "maxDelay": "0.1s"}
    await pushing.subscribe(extensions={"push": {"digest": digest}})

    def texts(call: Call) -> list[str]:
        return [each["message"]["attributes"]["n"] for each in call.body["messages"]]

    pushing.far_side.answers = lambda call: 400 if "3" in texts(call) else 200
    await pushing.rest.publish(*[message("x", attributes={"n": str(n)}) for n in range(16)])

    async def one_is_left() -> bool:
        return await pushing.rest.backlog() == 1

    await eventually(one_is_left)
    failed = [len(texts(call)) for call in pushing.far_side.calls if "3" in texts(call)]
    assert failed[:2] == [16, 8]
    assert failed[-1] == 1


async def test_a_message_published_while_all_others_fail_is_tried(pushing: Pushing) -> None:
    """Probes take new messages as well as old ones."""
    await pushing.subscribe()
    pushing.far_side.answers = _failing(500)
    await pushing.rest.publish(*[f"poison {n}" for n in range(8)])
    await eventually(lambda: pushing.endpoint.health.consecutive_failures >= 8)
    await pushing.rest.publish("healthy")
    await _until_delivered(pushing, 1)


async def test_what_waited_during_an_outage_is_delivered_after_the_first_success(pushing: Pushing) -> None:
    await pushing.subscribe()
    pushing.far_side.answers = lambda _: 503
    await pushing.rest.publish(*[str(n) for n in range(500)])
    await eventually(lambda: pushing.endpoint.health.consecutive_failures >= 8)
    down = len(pushing.far_side.calls)
    assert down < 30, "the endpoint backs off"
    pushing.far_side.answers = lambda _: 200
    await pushing.settled()
    assert pushing.endpoint.health.consecutive_failures == 0


async def test_with_a_retry_policy_no_message_is_sent_before_its_own_delay_is_over(pushing: Pushing) -> None:
    policy = {"minimumBackoff": "600s", "maximumBackoff": "600s"}
    await pushing.subscribe(retryPolicy=policy)
    pushing.far_side.answers = _failing(503)
    await pushing.rest.publish(*[f"poison {n}" for n in range(12)])
    await eventually(lambda: len(pushing.far_side.calls) == 12)
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.publish(*[f"healthy {n}" for n in range(20)])
    await _until_delivered(pushing, 20)
    assert len(pushing.far_side.calls) == 32, "none of the twelve again"


async def test_410_pauses_only_if_different_messages_get_it_without_a_success_in_between(
    pushing: Pushing,
) -> None:
    await pushing.subscribe()
    pushing.far_side.answers = _failing(410)
    for n in range(6):
        await pushing.rest.publish(f"poison {n}")
        await eventually(lambda n=n: f"poison {n}" in pushing.far_side.texts)
        await pushing.rest.publish(f"healthy {n}")
        await _until_delivered(pushing, n + 1)
    assert not pushing.endpoint.closed

    async def paused() -> bool:
        status: Any = await pushing.rest.ok("GET", f"{pushing.rest.subscription()}:pushStatus")
        return bool(status["state"] == "PAUSED")

    assert not await paused()
    await pushing.rest.publish(*[f"poison {n}" for n in range(10, 13)])
    await eventually(paused)
