"""The status and the failures of pushes over REST, pausing and resuming; extensions (A8, C6).

The store is written to as the process that delivers does: nothing is pushed here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.pushing.push_log import PushLog
from broker.db.driver.database import Database
from broker.model.push_state import FailingMessage, FailureRun, PushFailure, PushState
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, eventually

ENDPOINT = "http://127.0.0.1:9/push"  # nobody listens there
PUSH = {"pushConfig": {"pushEndpoint": ENDPOINT}}
MESSAGE_ID = "1000000000000001"
TIME = datetime(2026, 11, 21, 7, 0, 0, 123456, tzinfo=UTC)


@dataclass
class Pushed:
    """A broker with a push subscription of the test's own, and its database."""

    rest: Rest
    database: Database

    @property
    def name(self) -> str:
        return self.rest.subscription()

    async def subscription(self) -> Subscription:
        async with self.database.transaction() as connection:
            found = await subscriptions.find_subscription(connection, name=self.name)
        assert found is not None
        return found

    async def status(self) -> Json:
        return await self.rest.ok("GET", f"{self.name}:pushStatus")

    async def write(self, changed_at: datetime = TIME, **fields: object) -> None:
        """A state, as it is written down by the process that delivers."""
        subscription_id = (await self.subscription()).subscription_id
        state = PushState(subscription_id=subscription_id, changed_at=changed_at, **fields)  # type: ignore[arg-type]
        async with self.database.transaction() as connection:
            await push_states.write_push_states(connection, states=[state])


@pytest.fixture(scope="module")
def served(clone: Callable[[], Any]) -> Iterator[tuple[str, str]]:
    """The URLs of a broker of this module's own and of its database."""
    with clone() as database_url:
        broker = BrokerProcess("--database-url", database_url, "--port", "0").wait_until_ready()
        yield broker.url, database_url
        assert broker.stop() == 0


@pytest.fixture
async def pushed(served: tuple[str, str], project: str) -> AsyncIterator[Pushed]:
    url, database_url = served
    database = Database(database_url, pool_size=2)
    async with httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, project)
        await rest.create_topic()
        await rest.create_subscription(**PUSH)
        yield Pushed(rest, database)
    await database.close()


async def test_the_status_says_what_is_known_of_the_endpoint(pushed: Pushed) -> None:
    assert (await pushed.status())["state"] == "ACTIVE"
    assert (await pushed.status())["circuitBreaker"]["state"] == "CLOSED"
    retry_at = datetime.now(UTC) + timedelta(minutes=10)
    await pushed.write(
        breaker="half_open",
        consecutive_failures=21,
        window=1,
        outstanding_requests=1,
        retry_at=retry_at,
        failures=FailureRun(since=TIME, requests=1_021, status=503, reason="Service Unavailable"),
    )
    assert await pushed.status() == {
        "state": "FAILING",
        "deliveryState": "ENDPOINT_FAILING",
        "verdict": "The endpoint fails: 1,021 requests have failed without a success "
        "since 2026-11-21T07:00:00.123Z; the last one: status 503 (Service Unavailable); "
        "its circuit breaker is half open; "
        f"the next attempt is at {format_timestamp(retry_at)}.",
        "endpointFailure": {
            "startTime": "2026-11-21T07:00:00.123Z",
            "failedRequests": 1021,
            "status": 503,
            "reason": "Service Unavailable",
            "retryTime": format_timestamp(retry_at),
        },
        "circuitBreaker": {
            "state": "HALF_OPEN",
            "consecutiveFailures": 21,
            "changeTime": "2026-11-21T07:00:00.123Z",
        },
        "window": 1,
        "outstandingRequests": 1,
        "retryTime": format_timestamp(retry_at),
    }
    await pushed.write(window=5)
    status = await pushed.status()
    assert (status["window"], status["outstandingRequests"], "retryTime" in status) == (5, 0, False)


async def test_a_retry_time_never_lies_in_the_past(pushed: Pushed) -> None:
    """Nothing changes when it passes, so nobody writes the state down anew."""
    run = FailureRun(since=TIME, requests=3, status=None, reason="connection refused")
    await pushed.write(consecutive_failures=3, retry_at=TIME + timedelta(seconds=30), failures=run)
    status = await pushed.status()
    assert status["endpointFailure"] == {
        "startTime": "2026-11-21T07:00:00.123Z",
        "failedRequests": 3,
        "reason": "connection refused",
    }
    assert "retryTime" not in status
    assert "next attempt" not in status["verdict"]


async def test_failures_that_have_just_begun_do_not_make_an_endpoint_fail(pushed: Pushed) -> None:
    run = FailureRun(since=datetime.now(UTC) + timedelta(hours=1), requests=1, status=503, reason="")
    await pushed.write(consecutive_failures=1, failures=run)
    assert (await pushed.status())["state"] == "ACTIVE"
    await pushed.write(consecutive_failures=1, failures=replace(run, is_reported=True))
    assert (await pushed.status())["state"] == "FAILING"


async def test_the_status_names_the_messages_that_keep_failing(pushed: Pushed) -> None:
    message = FailingMessage(
        message_id=MESSAGE_ID, since=TIME, failures=7, status=422, reason="Unprocessable Entity"
    )
    await pushed.write(failing_messages=(message,))
    status = await pushed.status()
    assert (status["state"], status["failingMessages"]) == (
        "ACTIVE",
        [
            {
                "messageId": MESSAGE_ID,
                "startTime": "2026-11-21T07:00:00.123Z",
                "failedAttempts": 7,
                "status": 422,
                "reason": "Unprocessable Entity",
            }
        ],
    )


async def test_the_status_says_that_a_subscription_waits_for_slots_while_somebody_repeats_it(
    pushed: Pushed,
) -> None:
    """Whoever wrote it down may have been killed since."""
    now = datetime.now(UTC)
    waits = {"window": 1, "outstanding_requests": 1, "waits_since": now - timedelta(minutes=5)}
    await pushed.write(now, **waits)
    status = await pushed.status()
    assert status["waitsForSlotsSince"] == format_timestamp(now - timedelta(minutes=5))
    assert (status["state"], "retryTime" in status) == ("ACTIVE", False)
    await pushed.write(now - timedelta(seconds=31), **waits)
    assert "waitsForSlotsSince" not in await pushed.status()
    await pushed.write(now, window=1)
    assert "waitsForSlotsSince" not in await pushed.status()
    await pushed.write(now, **waits)
    await pushed.rest.ok("POST", f"{pushed.name}:pausePush")
    assert "waitsForSlotsSince" not in await pushed.status()


async def test_pushing_is_paused_and_resumed(pushed: Pushed) -> None:
    for body, reason in (({"reason": "maintenance"}, "maintenance"), (None, "Paused by a call of pausePush.")):
        assert await pushed.rest.ok("POST", f"{pushed.name}:pausePush", body) == {}
        status = await pushed.status()
        assert (status["state"], status["pausedReason"]) == ("PAUSED", reason)
        pause = (await pushed.subscription()).pause
        assert (pause and pause.reason) == reason
        shown = await pushed.rest.ok("GET", pushed.name)
        assert (shown["state"], shown["pause"]["pausedReason"]) == ("ACTIVE", reason)
        [listed] = (await pushed.rest.ok("GET", f"{pushed.rest.project}/subscriptions"))["subscriptions"]
        assert listed["pause"] == shown["pause"]
        sent_back = {"subscription": shown | {"labels": {"a": "b"}}, "updateMask": "labels"}
        assert (await pushed.rest.ok("PATCH", pushed.name, sent_back))["pause"] == shown["pause"]
    for _ in range(2):
        assert await pushed.rest.ok("POST", f"{pushed.name}:resumePush") == {}
        assert (await pushed.status())["state"] == "ACTIVE"
        shown = await pushed.rest.ok("GET", pushed.name)
        assert (shown["state"], "pause" in shown) == ("ACTIVE", False)
    assert (await pushed.subscription()).pause is None


async def test_a_pause_survives_other_changes_of_the_subscription(pushed: Pushed) -> None:
    await pushed.rest.ok("POST", f"{pushed.name}:pausePush")
    body = {"subscription": {"labels": {"a": "b"}}, "updateMask": "labels"}
    await pushed.rest.ok("PATCH", pushed.name, body)
    await pushed.write(window=5)
    assert (await pushed.status())["state"] == "PAUSED"


async def _modify(pushed: Pushed, endpoint: str) -> None:
    await pushed.rest.ok("POST", f"{pushed.name}:modifyPushConfig", {"pushConfig": {"pushEndpoint": endpoint}})


async def _patch(pushed: Pushed, endpoint: str) -> None:
    body = {"subscription": {"pushConfig": {"pushEndpoint": endpoint}}, "updateMask": "pushConfig"}
    await pushed.rest.ok("PATCH", pushed.name, body)


@pytest.mark.parametrize("set_config", [_modify, _patch])
async def test_setting_a_push_config_resumes(
    pushed: Pushed, set_config: Callable[[Pushed, str], Awaitable[None]]
) -> None:
    """And with another endpoint, nothing is held against it that the first one did."""
    await pushed.write(breaker="open", consecutive_failures=20, paused_reason="it is gone")
    await set_config(pushed, ENDPOINT)
    status = await pushed.status()
    assert (status["state"], status["circuitBreaker"]["state"]) == ("FAILING", "OPEN")
    await pushed.write(breaker="open", consecutive_failures=20, paused_reason="it is gone")
    await set_config(pushed, f"{ENDPOINT}/other")
    status = await pushed.status()
    assert (status["state"], status["circuitBreaker"]["state"]) == ("ACTIVE", "CLOSED")


async def test_what_is_not_pushed_has_no_status_and_cannot_be_paused(pushed: Pushed) -> None:
    rest = pushed.rest
    await pushed.write(window=5)
    await rest.ok("POST", f"{pushed.name}:modifyPushConfig", {})
    assert await pushed.status() == {"state": "PULL"}
    await rest.create_subscription("detached", **PUSH)
    detached = rest.subscription("detached")
    await rest.ok("POST", f"{detached}:detach")
    assert await rest.ok("GET", f"{detached}:pushStatus") == {"state": "DETACHED"}
    for name in (pushed.name, detached):
        for verb in ("pausePush", "resumePush"):
            assert (await rest.error("POST", f"{name}:{verb}"))[0] == "FAILED_PRECONDITION"
        assert await rest.ok("GET", f"{name}:pushFailures") == {}
    none = rest.subscription("none")
    for method, verb in (
        ("GET", "pushStatus"),
        ("GET", "pushFailures"),
        ("POST", "pausePush"),
        ("POST", "resumePush"),
    ):
        assert (await rest.error(method, f"{none}:{verb}"))[0] == "NOT_FOUND"


@pytest.mark.parametrize(
    "body", [{"reason": "x" * 1_001}, {"reason": "\0"}, {"reason": {}}, {"why": "x"}, ["x"]], ids=str
)
async def test_a_reason_that_is_none_is_refused(rest: Rest, body: Json) -> None:
    await rest.create_topic()
    await rest.create_subscription(**PUSH)
    assert (await rest.error("POST", f"{rest.subscription()}:pausePush", body))[0] == "INVALID_ARGUMENT"
    assert (await rest.ok("GET", f"{rest.subscription()}:pushStatus"))["state"] == "ACTIVE"


# --- failures ---------------------------------------------------------------------------------------------


async def _fail(pushed: Pushed, *details: str, status: int | None = 503, message_id: str = MESSAGE_ID) -> None:
    log = PushLog(pushed.database)
    subscription_id = (await pushed.subscription()).subscription_id
    for n, detail in enumerate(details):
        log.failed(
            PushFailure(
                subscription_id=subscription_id,
                failed_at=TIME + timedelta(seconds=n),
                message_id=message_id,
                delivery_attempt=n + 1,
                endpoint=ENDPOINT,
                status=status,
                latency=timedelta(milliseconds=12),
                detail=detail,
            )
        )
    assert await log.flush() == len(details)


async def test_failures_are_listed_newest_first(pushed: Pushed) -> None:
    path = f"{pushed.name}:pushFailures"
    assert await pushed.rest.ok("GET", path) == {}
    await _fail(pushed, "Service Unavailable", '<html>\0"\u2028')
    await _fail(pushed, "Connection refused", status=None)
    listed = (await pushed.rest.ok("GET", path))["pushFailures"]
    assert [f["detail"] for f in listed] == ["Connection refused", '<html>\ufffd"\u2028', "Service Unavailable"]
    assert "status" not in listed[0]
    assert listed[1] == {
        "failTime": "2026-11-21T07:00:01.123Z",
        "messageId": MESSAGE_ID,
        "deliveryAttempt": 2,
        "endpoint": ENDPOINT,
        "status": 503,
        "latency": "0.012s",
        "detail": '<html>\ufffd"\u2028',
    }


async def test_failures_are_paged_also_while_new_ones_come(pushed: Pushed) -> None:
    path = f"{pushed.name}:pushFailures"
    await _fail(pushed, *"abcde")
    pages = [await pushed.rest.ok("GET", path, params={"pageSize": 2})]
    await _fail(pushed, *"xyz")
    while token := pages[-1].get("nextPageToken"):
        pages.append(await pushed.rest.ok("GET", path, params={"page_size": 2, "page_token": token}))
    assert [[f["detail"] for f in page["pushFailures"]] for page in pages] == [["e", "d"], ["c", "b"], ["a"]]


async def test_failures_of_one_message_can_be_asked_for(pushed: Pushed) -> None:
    path = f"{pushed.name}:pushFailures"
    await _fail(pushed, "a", "b")
    await _fail(pushed, "c", message_id="1000000000000002")
    await _fail(pushed, "d")
    first = await pushed.rest.ok("GET", path, params={"messageId": MESSAGE_ID, "pageSize": 2})
    more = {"message_id": MESSAGE_ID, "pageSize": 2, "pageToken": first["nextPageToken"]}
    second = await pushed.rest.ok("GET", path, params=more)
    assert [f["detail"] for page in (first, second) for f in page["pushFailures"]] == ["d", "b", "a"]
    assert await pushed.rest.ok("GET", path, params={"messageId": "1000000000000003"}) == {}


@pytest.mark.parametrize(
    "query",
    [
        {"messageId": "\0"},
        {"pageSize": "-1"},
        {"pageSize": "x"},
        {"pageToken": "x"},
        {"pageToken": "AAAA"},
        {"pageToken": "é"},
    ],
    ids=str,
)
async def test_a_page_that_is_none_is_refused(rest: Rest, query: Json) -> None:
    await rest.create_topic()
    await rest.create_subscription(**PUSH)
    path = f"{rest.subscription()}:pushFailures"
    assert (await rest.error("GET", path, params=query))[0] == "INVALID_ARGUMENT"


async def test_failures_stay_when_the_endpoint_changes_and_go_with_the_subscription(pushed: Pushed) -> None:
    await _fail(pushed, "a")
    await _modify(pushed, f"{ENDPOINT}/other")
    await pushed.rest.ok("POST", f"{pushed.name}:detach")
    listed = (await pushed.rest.ok("GET", f"{pushed.name}:pushFailures"))["pushFailures"]
    assert [f["detail"] for f in listed] == ["a"]
    await pushed.rest.ok("DELETE", pushed.name)
    await pushed.rest.create_subscription(**PUSH)
    assert await pushed.rest.ok("GET", f"{pushed.name}:pushFailures") == {}


# --- other processes --------------------------------------------------------------------------------------


async def test_a_pause_and_its_end_are_announced_to_all_processes(pushed: Pushed) -> None:
    """Whoever delivers reads the subscription again then."""
    broker = Broker(AppConfig(database_url=pushed.database.url))
    async with broker.running():

        async def reason() -> str:
            pause = (await broker.core.resources.subscription(pushed.name)).pause
            return "" if pause is None else pause.reason

        assert await reason() == ""
        await pushed.rest.ok("POST", f"{pushed.name}:pausePush", {"reason": "why"})
        await eventually(lambda: _is(reason, "why"))
        await pushed.rest.ok("POST", f"{pushed.name}:resumePush")
        await eventually(lambda: _is(reason, ""))


async def _is(value: Callable[[], Awaitable[str]], wanted: str) -> bool:
    return await value() == wanted
