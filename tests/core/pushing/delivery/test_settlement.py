"""What becomes of pushes when the database is away, calls are overdue, or the broker stops (A8)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
from sqlalchemy import make_url

from broker.core.pushing import sender
from broker.core.pushing.client.http_client import Answer, Unreachable
from broker.model.errors import Unavailable
from tests.fixtures.broker import eventually, message, text
from tests.fixtures.pusher import Pushing, running_pusher


@asynccontextmanager
async def away(server_url: str, database_url: str) -> AsyncIterator[None]:
    """The database takes no connections within the block."""
    name = make_url(database_url).database
    async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as admin:
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        yield
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


async def test_what_was_delivered_while_the_database_was_away_is_not_delivered_again(
    pushing: Pushing, server_url: str, database_url: str
) -> None:
    await pushing.subscribe(ackDeadlineSeconds=600)
    await pushing.rest.publish("1", "2")
    calls = await pushing.far_side.wait_for(2)
    async with away(server_url, database_url):
        for call in calls:
            call.answer(200)
        await asyncio.sleep(2)  # longer than a flush is tried again

    async def settled() -> bool:
        with suppress(Unavailable):  # this test's own connections
            return not await pushing.rows("SELECT 1 FROM delivery_attempts")
        return False

    await eventually(settled)
    pushing.far_side.answers = lambda _: 200
    body = {"messages": [message("3")]}

    async def published() -> bool:
        answer = await pushing.rest.call("POST", f"{pushing.rest.topic()}:publish", body)
        return answer.status_code == 200  # not over a connection that broke

    await eventually(published)
    await pushing.far_side.wait_for(3)
    assert pushing.far_side.texts[:3] == ["1", "2", "3"]


async def test_a_late_success_counts_wherever_its_message_is_by_then(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.shorten_ack_deadlines()
    await pushing.rest.publish("slow")
    first, second = await pushing.far_side.wait_for(2)
    assert first.is_open
    first.answer(200)
    await pushing.settled()
    late = pushing.endpoint.late.values()
    assert all(item.attempt_number == 2 for item in late), (
        "the first is forgotten; the second may be overdue by now"
    )
    second.answer(500)
    await asyncio.sleep(0.3)
    assert len(pushing.far_side.calls) == 2


async def test_late_answers_are_counted_until_one_is_in_time(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.shorten_ack_deadlines()
    await pushing.rest.publish("slow")
    first, second = await pushing.far_side.wait_for(2)
    first.answer(200)
    await eventually(lambda: pushing.endpoint.late_answers is not None)
    late = pushing.endpoint.late_answers
    assert late is not None
    assert (late.requests, late.since) == (1, late.last_at)
    second.answer(500)
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.publish("fast")
    await eventually(lambda: pushing.endpoint.late_answers is None)


async def test_calls_that_are_overdue_are_forgotten_when_they_end(pushing: Pushing) -> None:
    """Calls of an endpoint that hangs overlap for ever: their messages must not be kept for as long."""
    await pushing.subscribe()
    await pushing.shorten_ack_deadlines()
    await pushing.rest.publish("1", "2")
    first, second = await pushing.far_side.wait_for(2)
    await eventually(lambda: len(pushing.endpoint.late_flights) == 2)
    assert len(pushing.endpoint.late) == 2
    first.answer(500)
    await eventually(lambda: first.ended)
    keys = {item.message.data for item in pushing.endpoint.late.values()}
    assert keys == {second.text.encode()} or len(pushing.endpoint.late_flights) > 1


async def test_no_more_calls_stay_open_overdue_than_an_endpoint_may_have(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.shorten_ack_deadlines()
    pushing.endpoint.health._window = 100.0
    await pushing.rest.publish(*[str(n) for n in range(400)])
    await eventually(lambda: len(pushing.endpoint.flights) > sender._MAX_LATE_CALLS)
    await eventually(lambda: pushing.endpoint.late_flights)
    await asyncio.sleep(0.2)
    still_open = len(pushing.far_side.open_calls) - len(pushing.endpoint.flights)
    assert still_open <= sender._MAX_LATE_CALLS
    assert pushing.endpoint.bytes_held == sum(
        p.size for p in [*pushing.endpoint.buffer, *(f.push_batch for f in pushing.endpoint.flights)]
    )


async def test_a_broker_that_stops_acks_what_was_delivered_and_gives_back_what_was_not_sent(
    database_url: str,
) -> None:
    async with running_pusher(database_url) as pushing:
        await pushing.subscribe()
        await pushing.subscribe("ordered", "http://far.example/ordered", enableMessageOrdering=True)
        await pushing.warm_up(200)
        for n in range(40):
            await pushing.rest.publish(message(str(n), orderingKey=f"k{n}"))
        await pushing.rest.publish(*[str(n) for n in range(400)])
        await eventually(lambda: all(e.buffer and e.flights for e in pushing.endpoints.values()))
        done, *_ = pushing.far_side.open_calls
        done.answer(200)
    out = sum(call.outcome.cancelled() for call in pushing.far_side.calls)
    async with await psycopg.AsyncConnection.connect(database_url) as database:  # before the next one claims any
        found = await database.execute(
            "SELECT status, coalesce(attempt_numbers[1], attempt_number), bit_count(open) FROM delivery_attempts"
        )
        rows = await found.fetchall()
    async with running_pusher(database_url) as pushing:
        leased = sum(count for status, _, count in rows if status == "delivering")
        assert leased <= out + 8, "only what was out, and what a row of it holds"
        released = {number for status, number, count in rows if status == "pending" and count}
        assert released <= {0}, "attempts that were not made do not count"
        pushing.far_side.answers = lambda _: 200
        await eventually(lambda: len(pushing.far_side.calls) > 100)


async def test_a_dead_letter_tells_what_became_of_its_last_push(database_url: str) -> None:
    outcomes: list[Answer | Unreachable | None] = [Answer(503, b"", None), Unreachable("no route"), None]
    async with running_pusher(database_url, min_delivery_attempts=1) as pushing:
        await pushing.rest.create_topic("dead")
        await pushing.rest.create_subscription("letters", "dead")
        policy = {"deadLetterTopic": pushing.rest.topic("dead"), "maxDeliveryAttempts": 1}
        await pushing.subscribe(deadLetterPolicy=policy)
        await pushing.subscribe(
            "digested", deadLetterPolicy=policy, extensions={"push": {"digest": {"maxMessages": 1}}}
        )
        await pushing.shorten_ack_deadlines()
        [*_, digested] = await pushing.rest.publish("0", "1", "2")
        for call in await pushing.far_side.wait_for(6):
            if "messages" in call.body:
                call.answer(200, body=json.dumps({"failedMessageIds": [digested]}).encode())
            elif (outcome := outcomes[int(call.text)]) is not None:
                call.outcome.set_result(outcome)
        attribution: set[tuple[str, str]] = set()
        while len(attribution) < 4:
            for dead_letter in await pushing.rest.pull("letters", wait=True):
                attribution.add(
                    (text(dead_letter), dead_letter["message"]["attributes"]["broker-dead-letter-reason"])
                )
    assert attribution == {
        ("0", "push 503"),
        ("1", "push unreachable"),
        ("2", "push digest"),
        ("2", "push timeout"),
    }
