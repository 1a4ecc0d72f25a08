"""Attempts to push by minute and status, and the history of circuit breakers, over REST; extensions."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from broker.app.broker import Broker
from broker.core.pushing.push_history import MAX_STATUSES, PushHistory
from broker.core.pushing.push_history_rows import (
    delete_old_push_attempts,
    list_breaker_changes,
    list_push_attempts,
    record_breaker_changes,
)
from broker.model.errors import Unavailable
from broker.model.push_history import (
    ATTEMPTS_KEPT,
    MAX_BREAKER_CHANGES,
    BreakerChange,
    PushAttemptPage,
    PushAttempts,
)
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.log import Log
from tests.fixtures.push_sink import PushSink

MINUTE = timedelta(minutes=1)
START = datetime(2026, 11, 27, 12, 0, 30, tzinfo=UTC)


async def _attempts(log: Log, subscription_id: int | None = None, **options: Any) -> list[PushAttempts]:
    async with log.database.transaction() as connection:
        return await list_push_attempts(
            connection,
            subscription_id=subscription_id or log.subscription.subscription_id,
            page=PushAttemptPage(size=1_000, **options),
        )


def _attempt(
    history: PushHistory, subscription_id: int, status: str, *, at: datetime = START, message_id: str = "1"
) -> None:
    history.attempted(
        subscription_id, at, status=status, delivered=status == "200", seconds=0.5, message_id=message_id
    )


async def test_requests_are_counted_by_minute_and_status(log: Log) -> None:
    own = log.subscription.subscription_id
    history = PushHistory(log.database)
    for number in range(3):
        _attempt(history, own, "200", message_id=f"{number}")
    _attempt(history, own, "503")
    await history.flush()
    _attempt(history, own, "200", message_id="3")
    _attempt(history, own, "200", at=START + MINUTE)
    await history.flush()
    await history.flush()
    found = [(each.minute, each.status, each.requests, each.last_message_id) for each in await _attempts(log)]
    minute = START.replace(second=0)
    assert found == [(minute + MINUTE, "200", 1, "1"), (minute, "200", 4, "3"), (minute, "503", 1, "1")]
    assert [each.status for each in await _attempts(log, outcome="FAILED")] == ["503"]
    assert [each.minute for each in await _attempts(log, since=START)] == [minute + MINUTE]
    [_, counted, _] = await _attempts(log)
    assert counted.latency == timedelta(seconds=2)


async def test_counts_are_few_whatever_an_endpoint_answers_and_are_kept_for_a_day(log: Log) -> None:
    own = log.subscription.subscription_id
    history = PushHistory(log.database)
    for status in range(400, 500):
        _attempt(history, own, str(status))
    await history.flush()
    found = await _attempts(log)
    assert len(found) == MAX_STATUSES + 1
    assert sum(each.requests for each in found) == 100
    assert {each.status: each.requests for each in found}["other"] == 100 - MAX_STATUSES
    async with log.database.connection() as connection:
        await delete_old_push_attempts(connection, now=START + ATTEMPTS_KEPT)
    assert await _attempts(log) == []


async def test_successes_are_never_counted_with_failures(log: Log) -> None:
    own = log.subscription.subscription_id
    history = PushHistory(log.database)
    for status in [*range(400, 420), 200]:
        _attempt(history, own, str(status))
    await history.flush()
    assert [(each.status, each.requests) for each in await _attempts(log, outcome="DELIVERED")] == [("200", 1)]
    assert {each.status for each in await _attempts(log, outcome="FAILED")} >= {"400", "other"}


async def test_what_the_database_does_not_take_is_written_later(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    own = log.subscription.subscription_id
    history = PushHistory(log.database)
    _attempt(history, own, "200")
    history.breaker_changed(_change(own, 1))

    def away(*_: object, **__: object) -> Any:
        raise Unavailable("The database is away.")

    with monkeypatch.context() as patched:
        patched.setattr(log.database, "transaction", away)
        with pytest.raises(Unavailable):
            await history.flush()
    _attempt(history, own, "200")
    await history.flush()
    assert [each.requests for each in await _attempts(log)] == [2]
    async with log.database.transaction() as connection:
        assert len(await list_breaker_changes(connection, subscription_id=own)) == 1


async def test_nothing_is_written_for_a_subscription_that_is_gone(log: Log) -> None:
    history = PushHistory(log.database)
    _attempt(history, 987_654_321, "200")
    history.breaker_changed(_change(987_654_321, 1))
    await history.flush()
    assert await _attempts(log, 987_654_321) == []


def _change(subscription_id: int, number: int) -> BreakerChange:
    return BreakerChange(
        subscription_id=subscription_id,
        changed_at=START + number * MINUTE,
        state="open" if number % 2 else "half_open",
        consecutive_failures=number,
        status=503,
        reason="Service Unavailable",
    )


async def test_the_last_changes_of_a_breaker_are_kept_with_the_attempts_around_them(log: Log) -> None:
    own = log.subscription.subscription_id
    history = PushHistory(log.database)
    for number in range(4):
        _attempt(history, own, "503", at=START + number * MINUTE)
    await history.flush()
    many = [_change(own, number) for number in range(MAX_BREAKER_CHANGES + 10)]
    async with log.database.transaction() as connection:
        await record_breaker_changes(connection, changes=many[:1])
        found = await list_breaker_changes(connection, subscription_id=own)
        assert [each.minute for each in found[0].attempts] == [START.replace(second=0) + n * MINUTE for n in (0, 1)]
        await record_breaker_changes(connection, changes=many[1:])
        kept = await list_breaker_changes(connection, subscription_id=own)
    assert [each.consecutive_failures for each in kept] == list(range(MAX_BREAKER_CHANGES + 9, 9, -1))


@pytest.mark.own_broker
async def test_pushes_that_succeed_and_that_fail_are_listed_in_pages(
    broker: Broker, rest: Rest, push_sink: PushSink
) -> None:
    path = f"/{uuid4()}"
    await push_sink.program(path, "/status/204", "/status/503", "/status/204")
    await rest.create_topic()
    await rest.create_subscription(pushConfig={"pushEndpoint": push_sink.url + path})
    for number in range(2):
        await rest.publish(message(f"{number}"))

    async def counts() -> Json:
        await broker.workers["push history"].run_once()
        found, token = list[Json](), ""
        while True:
            params = {"pageSize": 1, **({"pageToken": token} if token else {})}
            page = await rest.ok("GET", f"{rest.subscription()}:pushAttempts", params=params)
            found += page.get("pushAttempts", [])
            token = page.get("nextPageToken", "")
            if not token:
                break
        by_status: Json = {}
        for each in found:
            assert each["outcome"] == ("DELIVERED" if each["status"] == "204" else "FAILED")
            by_status[each["status"]] = by_status.get(each["status"], 0) + int(each["requests"])
        return by_status

    async def all_ended() -> bool:
        return await counts() == {"204": 2, "503": 1}

    await eventually(all_ended)
    for params, named in (
        ({"outcome": "delivered"}, "outcome=delivered"),
        ({"since": "yesterday"}, "since"),
        ({"pageToken": "x"}, "page_token=x"),
    ):
        code, why = await rest.error("GET", f"{rest.subscription()}:pushAttempts", params=params)
        assert (code, named in why) == ("INVALID_ARGUMENT", True), why


@pytest.mark.own_broker
async def test_the_history_of_a_breaker_is_part_of_the_push_status(
    broker: Broker, rest: Rest, push_sink: PushSink
) -> None:
    path = f"/{uuid4()}"
    await push_sink.program(path, *["/status/503"] * 3, "/status/200")
    await rest.create_topic()
    breaker = {"failureThreshold": 3, "openDuration": "1s"}
    push = {"pushEndpoint": push_sink.url + path}
    await rest.create_subscription(pushConfig=push, extensions={"push": {"circuitBreaker": breaker}})
    await rest.publish(*(message(f"{number}") for number in range(3)))

    async def closed() -> list[Json]:
        await broker.workers["push history"].run_once()
        status = await rest.ok("GET", f"{rest.subscription()}:pushStatus")
        found: list[Json] = status["circuitBreaker"].get("history", [])
        return found if found and found[0]["state"] == "CLOSED" else []

    history = await eventually(closed)
    assert [each["state"] for each in history] == ["CLOSED", "HALF_OPEN", "OPEN"]
    assert "reason" not in history[0]
    opened = history[-1]
    assert (opened["status"], opened["reason"], opened["consecutiveFailures"]) == (503, "Service Unavailable", 3)
    assert sum(int(each["requests"]) for each in opened["attempts"] if each["status"] == "503") == 3
