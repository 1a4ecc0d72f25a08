"""How waiting pulls end when claiming for them fails."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from broker.core.catalog.resource_cache import ResourceCache
from broker.core.claiming.claim_scheduler import ScheduledConsumer, ShardSubscription
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.pull_queue import PullQueue, SubscriptionChanged
from broker.db.driver.database import Database
from broker.model.delivery import Delivery, DeliveryRequest
from broker.model.errors import Unavailable
from broker.model.subscription import Subscription
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.fixtures.claims import pull_claims
from tests.fixtures.core import make_core
from tests.fixtures.log import Log, add_subscription
from tests.interleavings.steps import execute, open_transaction, until_waiting

# Before the beginning of time: the claim cannot compute from when on messages are retained.
UNFORESEEN = timedelta(days=365 * 3000)


async def _pull(long_poll: LongPoll, subscription: Subscription) -> list[Delivery]:
    request = DeliveryRequest(max_messages=10, max_bytes=1_000_000)
    return await long_poll.pull(subscription, request, wait_seconds=60, hung_up=_never)


async def _never() -> None:
    await asyncio.Event().wait()


async def test_an_unforeseen_fault_is_told_to_every_pull_and_the_next_one_is_served(
    log: Log, long_poll: LongPoll
) -> None:
    broken = replace(log.subscription, message_retention=UNFORESEEN)
    faults = await asyncio.gather(*[_pull(long_poll, broken) for _ in range(3)], return_exceptions=True)
    assert [type(fault) for fault in faults] == [OverflowError] * 3
    await log.publish("a")
    [delivery] = await _pull(long_poll, log.subscription)
    assert [message.data for message in delivery.messages] == [b"a"]


async def test_a_pull_that_waits_is_known_to_wait_for_its_subscription(log: Log, long_poll: LongPoll) -> None:
    waiting = asyncio.create_task(_pull(long_poll, log.subscription))
    await asyncio.sleep(0)
    assert list(long_poll.waited_for()) == [log.subscription.subscription_id]
    await log.publish("a")
    long_poll._scheduler.wake(log.shard_id, None)
    await waiting
    await eventually(lambda: not long_poll.waited_for())


async def test_pulls_that_wait_leave_places_to_other_subscriptions_and_projects(log: Log, tasks: Tasks) -> None:
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    long_poll = LongPoll(
        make_core(log.database, clock, tasks), pull_claims(log.database, clock, tasks), max_waiting=100
    )
    async with log.database.transaction() as connection:
        greedy, sibling, other = [
            await add_subscription(connection, log.topic, f"of-many-{n}", log.start) for n in range(3)
        ]
    neighbour = replace(other, name="projects/neighbour/subscriptions/s")
    pulls = [asyncio.create_task(_pull(long_poll, greedy)) for _ in range(120)]
    await asyncio.sleep(0)
    refusals = [pull.exception() for pull in pulls if pull.done()]
    assert 40 < len(refusals) < 50, "one alone has about three quarters"
    assert {type(refusal) for refusal in refusals} == {Unavailable}
    assert str(refusals[0]) == (
        f"Too many pulls wait in this process for {greedy.name}: it has its share; "
        "use fewer at a time, or try again."
    )
    pulls += [asyncio.create_task(_pull(long_poll, each)) for each in (sibling, neighbour)]
    await asyncio.sleep(0)
    assert not pulls[-1].done()
    assert not pulls[-2].done()
    at_once = await long_poll.pull(greedy, DeliveryRequest(max_messages=1, max_bytes=1), wait_seconds=0)
    assert at_once == [], "who does not wait takes nobody's place"
    long_poll.stop_waiting()
    await asyncio.gather(*pulls, return_exceptions=True)
    assert long_poll._waiting.total == long_poll._at_once.total == 0


async def test_a_pull_that_is_being_claimed_for_does_not_wait_on_for_a_subscription_that_has_changed(
    log: Log, long_poll: LongPoll
) -> None:
    """It may be a push subscription by now (A8)."""
    async with open_transaction(log.database) as holding:
        await execute(holding, "SELECT 1 FROM cursors FOR UPDATE")
        claiming = asyncio.create_task(_pull(long_poll, log.subscription))
        await until_waiting(log.database)
        long_poll.subscription_changed(log.subscription.name)
    with pytest.raises(SubscriptionChanged):
        await claiming
    assert not long_poll.waited_for()


async def test_a_pull_does_not_wait_for_a_change_that_was_heard_of_before_it_stood_in_line(
    log: Log, tasks: Tasks
) -> None:
    """Between the reading of its subscription and the wait; it would wait to its end."""
    clock, cache = DatabaseClock(log.database), ResourceCache(log.database, tasks)
    await clock.synchronise()
    claims = pull_claims(log.database, clock, tasks)
    long_poll = LongPoll(make_core(log.database, clock, tasks), claims, is_current=cache.is_current)
    subscription = await cache.subscription(log.subscription.name)
    cache.drop(subscription.name)
    long_poll.subscription_changed(subscription.name)
    with pytest.raises(SubscriptionChanged):
        await _pull(long_poll, subscription)
    await log.publish("a")
    [delivery] = await _pull(long_poll, await cache.subscription(subscription.name))
    assert [message.data for message in delivery.messages] == [b"a"]


async def _change(log: Log, long_poll: LongPoll) -> None:
    long_poll.subscription_changed(log.subscription.name)


async def _break_the_claim(log: Log, long_poll: LongPoll) -> None:
    await log.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )


async def test_what_reached_nobody_is_given_back_quietly_though_the_database_is_away(
    log: Log, tasks: Tasks, long_poll: LongPoll, caplog: pytest.LogCaptureFixture
) -> None:
    await log.publish("a")
    deliveries = await _pull(long_poll, log.subscription)
    nowhere = Database("postgresql://postgres@127.0.0.1:1/nowhere")
    away = LongPoll(make_core(nowhere, long_poll._clock, tasks), long_poll._scheduler)
    await away.release(log.subscription, deliveries)
    tasks.start(away.release(log.subscription, deliveries), name="release")
    await eventually(lambda: not tasks._running)
    gc.collect()  # a task's exception that nobody asked for is logged then
    await nowhere.close()
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [
        record for record in warnings if record.name != "broker.state"
    ] == []  # which tells once that it is away


@pytest.mark.parametrize("befalls", [_change, _break_the_claim])
async def test_a_pull_that_is_cancelled_stays_so_whatever_becomes_of_its_claim(
    log: Log, long_poll: LongPoll, befalls: Callable[[Log, LongPoll], Awaitable[None]]
) -> None:
    """A stream tries again after an error: it would go on, and take messages that nobody gets."""
    async with open_transaction(log.database) as holding:
        await execute(holding, "SELECT 1 FROM cursors FOR UPDATE")
        claiming = asyncio.create_task(_pull(long_poll, log.subscription))
        await until_waiting(log.database)
        claiming.cancel()
        await asyncio.sleep(0)
        await befalls(log, long_poll)
    with pytest.raises(asyncio.CancelledError):
        await claiming


async def test_a_pull_that_is_cancelled_while_it_waits_for_its_last_claim_takes_nothing_from_the_others(
    log: Log, long_poll: LongPoll
) -> None:
    waits, gone = asyncio.Event(), asyncio.Event()

    async def hung_up() -> None:
        waits.set()
        await gone.wait()

    one = DeliveryRequest(max_messages=1, max_bytes=1_000_000)
    leaving = asyncio.create_task(long_poll.pull(log.subscription, one, wait_seconds=60, hung_up=hung_up))
    await waits.wait()
    async with open_transaction(log.database) as holding:
        await execute(holding, "SELECT 1 FROM cursors FOR UPDATE")
        await log.publish("a", "b")
        staying = asyncio.create_task(_pull(long_poll, log.subscription))
        await until_waiting(log.database)
        gone.set()
        for _ in range(10):
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    assert await _data(staying) == [b"b"]
    assert await _data(_pull(long_poll, log.subscription)) == [b"a"]


async def test_a_pull_that_is_cancelled_again_and_again_takes_nothing_from_the_others(
    log: Log, long_poll: LongPoll
) -> None:
    await log.publish("a", "b")
    one = DeliveryRequest(max_messages=1, max_bytes=1_000_000)
    async with open_transaction(log.database) as holding:
        await execute(holding, "SELECT 1 FROM cursors FOR UPDATE")
        leaving = asyncio.create_task(long_poll.pull(log.subscription, one, wait_seconds=60))
        staying = asyncio.create_task(_pull(long_poll, log.subscription))
        await until_waiting(log.database)
        for _ in range(3):
            leaving.cancel()
            await asyncio.sleep(0)
    assert await _data(staying) == [b"b"]
    assert await _data(_pull(long_poll, log.subscription)) == [b"a"]


async def _data(pulled: Awaitable[list[Delivery]]) -> list[bytes]:
    return [message.data for delivery in await pulled for message in delivery.messages]


async def test_only_the_end_of_the_broker_is_called_so(log: Log, long_poll: LongPoll, tasks: Tasks) -> None:
    async with open_transaction(log.database) as holding:
        await execute(holding, "SELECT 1 FROM cursors FOR UPDATE")
        claiming = asyncio.create_task(_pull(long_poll, log.subscription))
        await until_waiting(log.database)
        behind = asyncio.create_task(_pull(long_poll, log.subscription))
        await asyncio.sleep(0)
        await tasks.close()
        for pull in (claiming, behind):
            with pytest.raises(Unavailable, match=r"The broker stops\."):
                await pull


async def test_waiting_callers_are_answered_with_500_and_the_log_has_the_fault(
    start_broker: Callable[..., BrokerProcess], log: Log, database_url: str
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await log.execute("UPDATE subscriptions SET message_retention = '3000 years'")
        pull = f"{log.subscription.name}:pull"
        errors = await asyncio.gather(*[rest.error("POST", pull, {"maxMessages": 1}) for _ in range(2)])
    assert {code for code, _ in errors} == {"INTERNAL"}
    await eventually(lambda: any("unexpected fault" in line for line in broker.log))


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is in cycles stays, from here on."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_pull_that_is_answered_leaves_nothing_to_the_collector(
    log: Log, long_poll: LongPoll, no_collector: None
) -> None:
    """Thousands that wait, end and begin again would keep it, and so the event loop, busy."""
    await log.publish("a")
    [delivery] = await _pull(long_poll, log.subscription)
    assert delivery.messages
    await eventually(lambda: not long_poll._queues)
    left = [
        type(each)
        for each in gc.get_objects()
        if isinstance(each, PullQueue | ScheduledConsumer | ShardSubscription)
    ]
    assert left == []
