"""What could keep the scheduler claiming without an end (A8)."""

import asyncio

from tests.fixtures.broker import eventually
from tests.fixtures.pusher import Pushing
from tests.interleavings.steps import lock_rows, open_transaction


async def claims_in(pushing: Pushing, seconds: float) -> int:
    before = len(pushing.claims)
    await asyncio.sleep(seconds)
    return len(pushing.claims) - before


async def test_a_cursor_that_is_gone_is_not_asked_for_again_and_again(pushing: Pushing) -> None:
    """The subscription was deleted elsewhere, and nothing was heard of it yet."""
    await pushing.subscribe()
    await pushing.execute("DELETE FROM cursors")
    pushing.broker.claiming.wake(None, pushing.endpoint.subscription_id)
    assert await claims_in(pushing, 0.5) < 10


async def test_a_cursor_that_is_locked_is_tried_again_at_intervals(pushing: Pushing) -> None:
    await pushing.subscribe()
    pushing.far_side.answers = lambda _: 200
    async with open_transaction(pushing.database) as locking:
        await lock_rows(locking, "cursors")
        pushing.broker.claiming.wake(None, pushing.endpoint.subscription_id)
        await pushing.rest.publish("hello")
        assert await claims_in(pushing, 0.5) < 50
    await pushing.settled()


async def test_an_endpoint_that_asks_to_be_left_alone_is_not_claimed_for(pushing: Pushing) -> None:
    """Also when a call that began before was answered well: what is claimed ahead could not be sent."""
    await pushing.subscribe()
    await pushing.warm_up()
    await pushing.rest.publish("1", "2")
    refused, taken = await pushing.far_side.wait_for(2)
    refused.answer(429, retry_after=30)
    await eventually(lambda: refused.ended)
    taken.answer(200)
    await pushing.rest.publish("3")
    await eventually(lambda: taken.ended)
    await asyncio.sleep(0.2)
    assert await claims_in(pushing, 0.5) < 10


async def test_what_nobody_wants_to_deliver_now_costs_nothing(pushing: Pushing) -> None:
    """An open circuit breaker, and messages that are due."""
    breaker = {"failureThreshold": 1, "openDuration": "600s"}
    await pushing.subscribe(extensions={"push": {"circuitBreaker": breaker}})
    pushing.far_side.answers = lambda _: 500
    await pushing.rest.publish(*[str(n) for n in range(50)])
    await pushing.far_side.wait_for(1)
    await asyncio.sleep(0.2)
    assert await claims_in(pushing, 0.5) < 5
