"""States and failures of push subscriptions: written together, bounded, and gone with their subscription."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.expiration.expiration_rows import delete_expired_subscription
from broker.core.pushing import push_failure_rows as push_failures
from broker.core.pushing import push_log
from broker.core.pushing.push_log import PushLog
from broker.db.driver.database import Database, ResourceConnection
from broker.model.errors import BrokerError
from broker.model.pause import Pause
from broker.model.push_config import PULL, Digest, NoWrapper, OidcToken, PushConfig, PushOptions
from broker.model.push_state import (
    MAX_EXCERPT,
    MAX_KEPT_FAILURES,
    FailingMessage,
    FailureRun,
    LateAnswers,
    PushFailure,
    PushFailurePage,
    PushState,
)
from broker.model.subscription import Extensions, Subscription
from tests.fixtures.log import Log, add_subscription
from tests.interleavings.steps import until_waiting

ENDPOINT = "http://127.0.0.1:9/push"


async def read_paused(connection: ResourceConnection) -> dict[int, str]:
    """The reasons of all pauses, by subscription id."""
    paused = text("SELECT subscription_id, paused_reason FROM push_states WHERE paused_reason <> ''")
    return {row.subscription_id: row.paused_reason for row in await connection.execute(paused)}


@pytest.fixture
async def connection(log: Log) -> AsyncIterator[ResourceConnection]:
    async with log.database.transaction() as connection:
        yield connection


def state(subscription_id: int, now: datetime, **fields: object) -> PushState:
    return PushState(subscription_id=subscription_id, changed_at=now, **fields)  # type: ignore[arg-type]


def failure(subscription_id: int, now: datetime, detail: str = "refused", **fields: object) -> PushFailure:
    wanted: dict[str, object] = {
        "subscription_id": subscription_id,
        "failed_at": now,
        "message_id": "1000000000000001",
        "delivery_attempt": 1,
        "endpoint": ENDPOINT,
        "status": 503,
        "latency": timedelta(milliseconds=12),
        "detail": detail,
    }
    return PushFailure(**(wanted | fields))  # type: ignore[arg-type]


async def failures(log: Log, subscription_id: int | None = None, **page: int) -> list[PushFailure]:
    async with log.database.transaction() as connection:
        return await push_failures.list_push_failures(
            connection,
            subscription_id=subscription_id or log.subscription.subscription_id,
            page=PushFailurePage(**({"size": 1000} | page)),
        )


async def make_push(log: Log, subscription: Subscription, **fields: object) -> Subscription:
    changed = replace(subscription, push_config=PushConfig(endpoint=ENDPOINT), **fields)  # type: ignore[arg-type]
    async with log.database.transaction() as connection:
        await subscriptions.update_subscription(connection, subscription=changed, now=log.start)
    return changed


async def three(log: Log) -> list[int]:
    """The log's subscription and two more, by id."""
    async with log.database.transaction() as connection:
        more = [await add_subscription(connection, log.topic, f"more-{n}", log.start) for n in range(2)]
    return [s.subscription_id for s in (log.subscription, *more)]


# --- states -----------------------------------------------------------------------------------------------


async def test_many_states_are_written_at_once_and_read_back(log: Log) -> None:
    ids = await three(log)
    later = log.start + timedelta(seconds=1)
    first = [state(i, log.start, window=4) for i in ids]
    run = FailureRun(since=log.start, requests=7, status=None, reason="connection\0refused", is_reported=True)
    second = state(
        ids[1],
        later,
        breaker="half_open",
        consecutive_failures=7,
        window=1,
        outstanding_requests=2,
        retry_at=later,
        failures=run,
        failing_messages=(
            FailingMessage(
                message_id="1000000000000001", since=later, failures=3, status=400, reason="Bad Request"
            ),
            FailingMessage(message_id="1000000000000002", since=later, failures=2, status=None, reason=""),
        ),
        late_answers=LateAnswers(
            since=log.start, last_at=later, requests=10, latency=timedelta(seconds=25, milliseconds=3)
        ),
    )
    async with log.database.transaction() as connection:
        assert await push_states.write_push_states(connection, states=first) == 3
        assert await push_states.write_push_states(connection, states=[second]) == 1
        assert await push_states.write_push_states(connection, states=[]) == 0
        read = [await push_states.read_push_state(connection, subscription_id=i) for i in ids]
        assert await push_states.read_push_state(connection, subscription_id=ids[-1] + 1) is None
    stored = replace(second, failures=replace(run, reason="connection\ufffdrefused"))
    assert read == [first[0], stored, first[2]]


async def test_what_has_failed_is_forgotten_with_the_next_success(log: Log, connection: ResourceConnection) -> None:
    own = log.subscription.subscription_id
    run = FailureRun(since=log.start, requests=7, status=503, reason="Service Unavailable")
    message = FailingMessage(message_id="1", since=log.start, failures=3, status=400, reason="Bad Request")
    for failures, messages in ((run, (message,)), (None, ())):
        wanted = state(own, log.start, failures=failures, failing_messages=messages)
        await push_states.write_push_states(connection, states=[wanted])
        assert await push_states.read_push_state(connection, subscription_id=own) == wanted


async def test_the_state_of_an_endpoint_is_not_written_once_another_has_its_place(log: Log) -> None:
    own = (await make_push(log, log.subscription)).subscription_id
    async with log.database.transaction() as connection:
        before = state(own, log.start, breaker="open", endpoint=f"{ENDPOINT}/before")
        assert await push_states.write_push_states(connection, states=[before]) == 0
        assert await push_states.read_push_state(connection, subscription_id=own) is None
        assert await push_states.write_push_states(connection, states=[replace(before, endpoint=ENDPOINT)]) == 1


async def test_a_state_leaves_a_pause_alone_unless_it_is_one(log: Log, connection: ResourceConnection) -> None:
    own = log.subscription.subscription_id
    await push_states.pause_pushes(connection, subscription_id=own, reason="by hand", now=log.start)
    assert await read_paused(connection) == {own: "by hand"}
    await push_states.write_push_states(connection, states=[state(own, log.start, window=9)])
    assert await read_paused(connection) == {own: "by hand"}
    await push_states.write_push_states(connection, states=[state(own, log.start, paused_reason="it is gone")])
    assert await read_paused(connection) == {own: "it is gone"}
    assert await push_states.resume_pushes(connection, subscription_id=own)
    assert not await push_states.resume_pushes(connection, subscription_id=own)
    assert await read_paused(connection) == {}
    await push_states.write_push_states(connection, states=[state(own, log.start)])
    assert await read_paused(connection) == {}


async def test_pausing_keeps_what_is_known_of_the_endpoint(log: Log, connection: ResourceConnection) -> None:
    own = log.subscription.subscription_id
    known = state(own, log.start, breaker="open", consecutive_failures=20)
    await push_states.write_push_states(connection, states=[known])
    await push_states.pause_pushes(connection, subscription_id=own, reason="why\0?", now=log.start)
    read = await push_states.read_push_state(connection, subscription_id=own)
    assert read == replace(known, paused_reason="why\ufffd?")
    await push_states.forget_push_state(connection, subscription_id=own)
    assert await push_states.read_push_state(connection, subscription_id=own) is None


async def test_a_pause_that_is_told_to_respect_another_does_and_is_ended_for_its_own_reason_alone(
    log: Log, connection: ResourceConnection
) -> None:
    own = log.subscription.subscription_id
    for reason, expected in (("denied", "denied"), ("denied anew", "denied")):
        paused = await push_states.pause_pushes(
            connection, subscription_id=own, reason=reason, now=log.start, unless_paused=True
        )
        assert (paused, await read_paused(connection)) == (reason == expected, {own: "denied"})
    await push_states.pause_pushes(connection, subscription_id=own, reason="by hand", now=log.start)
    assert not await push_states.resume_pushes(connection, subscription_id=own, reason="denied")
    assert await read_paused(connection) == {own: "by hand"}
    assert await push_states.resume_pushes(connection, subscription_id=own, reason="by hand")
    assert await read_paused(connection) == {}


async def test_what_an_endpoint_said_does_not_pause_its_successor(log: Log) -> None:
    own = (await make_push(log, log.subscription)).subscription_id
    async with log.database.transaction() as connection:
        for endpoint, paused in ((f"{ENDPOINT}/before", {}), (ENDPOINT, {own: "410"})):
            assert bool(paused) == await push_states.pause_pushes(
                connection, subscription_id=own, reason="410", now=log.start, endpoint=endpoint
            )
            assert await read_paused(connection) == paused


async def test_a_pause_waits_for_a_new_endpoint_that_is_just_being_set(log: Log) -> None:
    pushed = await make_push(log, log.subscription)
    own = pushed.subscription_id

    async def pause() -> bool:
        async with log.database.transaction() as connection:
            return await push_states.pause_pushes(
                connection, subscription_id=own, reason="410", now=log.start, endpoint=ENDPOINT
            )

    async with log.database.transaction() as connection:
        await subscriptions.lock_subscription(connection, name=pushed.name)
        pausing = asyncio.create_task(pause())
        await until_waiting(log.database)
        other = replace(pushed, push_config=PushConfig(endpoint=f"{ENDPOINT}/new"))
        await subscriptions.update_subscription(connection, subscription=other, now=log.start)
    assert not await pausing


# --- push subscriptions -----------------------------------------------------------------------------------


async def test_push_subscriptions_are_listed_by_id_with_their_pauses(log: Log) -> None:
    ids = await three(log)
    async with log.database.transaction() as connection:
        everybody = [
            await subscriptions.find_subscription(connection, name=name)
            for name in (log.subscription.name, *(f"projects/p/subscriptions/more-{n}" for n in range(2)))
        ]
    found = [s for s in everybody if s is not None]
    assert [s.subscription_id for s in found] == ids
    await make_push(log, found[0])
    await make_push(log, found[2])
    async with log.database.transaction() as connection:
        await push_states.pause_pushes(connection, subscription_id=ids[2], reason="gone", now=log.start)
        listed = await subscriptions.list_push_subscriptions(connection, after=0, limit=10)
        assert [(s.subscription_id, s.is_push, s.pause) for s in listed] == [
            (ids[0], True, None),
            (ids[2], True, Pause("gone", log.start)),
        ]
        assert await subscriptions.list_push_subscriptions(connection, after=0, limit=1) == listed[:1]
        assert await subscriptions.list_push_subscriptions(connection, after=ids[0], limit=1) == listed[1:]
        await subscriptions.detach_subscription(connection, subscription_id=ids[0], now=log.start)
        await subscriptions.update_subscription(
            connection, subscription=replace(found[2], push_config=PULL), now=log.start
        )
        assert await subscriptions.list_push_subscriptions(connection, after=0, limit=10) == []


async def test_a_push_config_and_its_options_are_read_back_as_they_were(log: Log) -> None:
    config = PushConfig(
        endpoint=ENDPOINT,
        attributes={"x-goog-version": "v1"},
        oidc_token=OidcToken(service_account_email="a@b.example", audience="who"),
        no_wrapper=NoWrapper(write_metadata=True),
    )
    options = PushOptions(
        messages_per_second=0.5,
        max_outstanding_requests=3,
        digest=Digest(max_messages=7, max_bytes=8, max_delay=timedelta(milliseconds=1500)),
        webhook_secrets=("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",),
    )
    wanted = replace(log.subscription, push_config=config, extensions=Extensions(push=options))
    async with log.database.transaction() as connection:
        await subscriptions.update_subscription(connection, subscription=wanted, now=log.start)
        assert await subscriptions.list_push_subscriptions(connection, after=0, limit=10) == [wanted]


async def test_the_list_of_push_subscriptions_is_read_by_its_index(
    log: Log, connection: ResourceConnection
) -> None:
    await connection.execute(
        text(
            "INSERT INTO subscriptions (name, topic, topic_id, retain_acked_messages,"
            " message_retention, enable_message_ordering, detached, created_at,"
            " last_active_at) SELECT 'projects/q/subscriptions/s' || n, 't', 1, false, '7 days', false,"
            " false, now(), now() FROM generate_series(1, 3000) AS n"
        )
    )
    await connection.execute(text("ANALYZE subscriptions"))
    query = subscriptions._SUBSCRIPTION.where(subscriptions._IS_PUSH)
    query = query.order_by(subscriptions.subscriptions.c.subscription_id).limit(100)
    compiled = query.compile(connection, compile_kwargs={"literal_binds": True})
    plan = "\n".join(row[0] for row in await connection.execute(text(f"EXPLAIN {compiled}")))
    assert "subscriptions_push_idx" in plan, plan


# --- failures ---------------------------------------------------------------------------------------------


async def test_failures_are_listed_newest_first_in_pages(log: Log) -> None:
    own, other, _ = await three(log)
    async with log.database.transaction() as connection:
        written = [failure(own, log.start + timedelta(seconds=n), f"no. {n}") for n in range(5)]
        written.insert(2, failure(other, log.start, status=None))
        assert await push_failures.record_push_failures(connection, failures=written) == 6
    listed = await failures(log)
    assert [f.detail for f in listed] == [f"no. {n}" for n in (4, 3, 2, 1, 0)]
    assert [replace(f, failure_id=0) for f in listed[:1]] == [written[-1]]
    assert await failures(log, size=2) == listed[:3], "one more than the page"
    assert await failures(log, size=2, before=listed[1].failure_id) == listed[2:]
    assert [f.status for f in await failures(log, other)] == [None]


async def test_the_newest_failures_of_each_subscription_are_kept(log: Log) -> None:
    own, other, _ = await three(log)
    for start in (0, 70):
        async with log.database.transaction() as connection:
            many = [failure(own, log.start, str(n)) for n in range(start, start + 70)]
            await push_failures.record_push_failures(connection, failures=[*many, failure(other, log.start)])
    assert [f.detail for f in await failures(log)] == [str(n) for n in reversed(range(40, 140))]
    assert len(await failures(log, other)) == 2


async def test_a_detail_is_stored_whatever_it_is_and_cut(log: Log) -> None:
    own = log.subscription.subscription_id
    details = [
        "nul\0nul",
        "lone \ud800 surrogate",
        "x" * 2 * MAX_EXCERPT,
        "",
        "\u202e{}'\"\\",
        "\U0001f40d" * 9_999,
    ]
    async with log.database.transaction() as connection:
        await push_failures.record_push_failures(
            connection, failures=[failure(own, log.start, d, endpoint=d, message_id=d) for d in details]
        )
    stored = [f.detail for f in reversed(await failures(log))]
    assert stored == [
        "nul\ufffdnul",
        "lone ? surrogate",
        "x" * MAX_EXCERPT,
        "",
        details[4],
        "\U0001f40d" * MAX_EXCERPT,
    ]


async def test_what_was_noted_goes_with_its_subscription_but_stays_when_it_is_detached(log: Log) -> None:
    own, other, third = await three(log)
    async with log.database.transaction() as connection:
        for i in (own, other, third):
            await push_states.pause_pushes(connection, subscription_id=i, reason="why", now=log.start)
            await push_failures.record_push_failures(connection, failures=[failure(i, log.start)])
        await subscriptions.detach_subscription(connection, subscription_id=third, now=log.start)
        await subscriptions.delete_subscription(connection, subscription_id=own)
    assert await failures(log) == []
    long_ago = "last_active_at = '2000-01-01', idle_watched = '2 days', idle_watched_at = now()"
    await log.execute(f"UPDATE subscriptions SET {long_ago} WHERE subscription_id = {other}")
    async with log.database.transaction() as connection:
        name = "projects/p/subscriptions/more-0"
        assert await delete_expired_subscription(connection, name=name, now=log.start) is not None
        assert await read_paused(connection) == {third: "why"}
    assert await failures(log, other) == []
    assert len(await failures(log, third)) == 1


async def test_what_comes_after_the_deletion_is_not_stored(log: Log, connection: ResourceConnection) -> None:
    own = log.subscription.subscription_id
    await subscriptions.delete_subscription(connection, subscription_id=own)
    assert await push_states.write_push_states(connection, states=[state(own, log.start)]) == 0
    assert await push_failures.record_push_failures(connection, failures=[failure(own, log.start)]) == 0
    await push_states.pause_pushes(connection, subscription_id=own, reason="why", now=log.start)
    assert await read_paused(connection) == {}


# --- the log of a process ---------------------------------------------------------------------------------


async def test_a_flush_writes_what_has_come_since_the_last(log: Log) -> None:
    own, other, _ = await three(log)
    process = PushLog(log.database)
    assert await process.flush() == 0
    for n in range(3):
        process.failed(failure(own, log.start, str(n)))
        process.changed(state(own, log.start, window=n))
    process.failed(failure(other, log.start))
    assert await process.flush() == 5
    assert await process.flush() == 0
    assert [f.detail for f in await failures(log)] == ["2", "1", "0"]
    async with log.database.transaction() as connection:
        read = await push_states.read_push_state(connection, subscription_id=own)
    assert read is not None
    assert read.window == 2


async def test_a_pause_is_not_lost_by_a_state_that_follows_it_at_once(log: Log) -> None:
    own = log.subscription.subscription_id
    process = PushLog(log.database)
    process.changed(state(own, log.start, paused_reason="it is gone"))
    process.changed(state(own, log.start, window=3))
    await process.flush()
    async with log.database.transaction() as connection:
        assert await read_paused(connection) == {own: "it is gone"}


async def test_what_could_not_be_written_is_kept_for_the_next_flush(log: Log) -> None:
    own, other, _ = await three(log)
    nowhere = Database("postgresql://127.0.0.1:1/none", pool_size=1)
    process = PushLog(nowhere)
    process.failed(failure(own, log.start, "first"))
    process.changed(state(own, log.start, window=1))
    process.changed(state(other, log.start, window=1))
    with pytest.raises(BrokerError):
        await process.flush()
    process.failed(failure(own, log.start, "second"))
    process.changed(state(own, log.start, window=2))
    with pytest.raises(BrokerError):
        await process.flush()
    await nowhere.close()
    process._database = log.database
    assert await process.flush() == 4
    assert [f.detail for f in await failures(log)] == ["second", "first"]
    async with log.database.transaction() as connection:
        read = [await push_states.read_push_state(connection, subscription_id=i) for i in (own, other)]
    assert [s.window for s in read if s is not None] == [2, 1]


async def test_what_waits_to_be_written_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_log, "MAX_WAITING_FAILURES", 150)
    monkeypatch.setattr(push_log, "MAX_WAITING_STATES", 2)
    ids = await three(log)
    process = PushLog(log.database)
    for n in range(2 * MAX_KEPT_FAILURES):
        process.failed(failure(ids[0], log.start, str(n)))
    for n in range(MAX_KEPT_FAILURES):
        process.failed(failure(ids[1], log.start, str(n)))
    process.failed(failure(ids[2], log.start))
    for i in ids:
        process.changed(state(i, log.start))
    assert await process.flush() == 152
    counts = [len(await failures(log, i)) for i in ids]
    assert counts == [99, 50, 1], "the last one took the place of the first one's oldest"
    assert (await failures(log, ids[1]))[0].detail == "99"
