"""What this broker adds to pushes, from outside: limits, digests, the circuit breaker, pauses, what is shown of it.

As api_spec/openapi.yaml and docs/operations.md describe them.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain
from typing import Any
from urllib.parse import quote

import pytest

from tests.fixtures.broker import Json, eventually, message, text
from tests.fixtures.push_sink import Received
from tests.fixtures.pushes import Pushes, pushed, side_by_side

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLACK = 0.05  # seconds between the broker's clock and ours, at most
LATE = 1.0  # seconds that a request may take to arrive, on a machine that has other things to do
SETTLED = 1.5  # seconds in which an unlimited endpoint would have had everything


def options(**push: Any) -> Json:
    return {"extensions": {"push": push}}


def digested(requests: list[Received]) -> list[list[str]]:
    """The data of the messages of each digest."""
    return [[text(item["message"]) for item in request.json["messages"]] for request in requests]


async def call(pushes: Pushes, verb: str, body: Json | None = None) -> None:
    assert await pushes.rest.ok("POST", f"{pushes.rest.subscription()}:{verb}", body or {}) == {}


async def until_state(pushes: Pushes, state: str) -> Json:
    """The status once the breaker, or the subscription, is in this state."""

    async def reached() -> Json | None:
        status = await pushes.status()
        return status if state in (status["state"], status.get("circuitBreaker", {}).get("state")) else None

    found: Json = await eventually(reached)
    return found


# --- trying -----------------------------------------------------------------------------------------------


@side_by_side
async def test_a_test_tells_what_the_endpoint_answers_though_pushes_are_paused_and_delivers_nothing(
    pushes: Pushes,
) -> None:
    path = await pushes.subscribe("/status/500", "/status/204")
    await call(pushes, "pausePush")
    await pushes.rest.publish("waits")
    test = f"{pushes.rest.subscription()}:testPush"
    refused = await pushes.rest.ok("POST", test, {"message": message("mine", {"a": "b"})})
    assert (refused["delivered"], refused["status"], refused["endpoint"]) == (False, 500, pushes.sink.url + path)
    taken = await pushes.rest.ok("POST", test)
    assert (taken["delivered"], taken["status"]) == (True, 204)
    first, second = await pushes.sink.requests(path)
    assert (pushed(first), first.json["message"]["attributes"], pushed(second)) == (
        "mine",
        {"a": "b"},
        "This is a test.",
    )
    status = await pushes.status()
    assert (status["state"], status["circuitBreaker"]["consecutiveFailures"]) == ("PAUSED", 0)
    assert await pushes.failures() == []


@side_by_side
async def test_a_test_says_why_there_is_no_answer(pushes: Pushes) -> None:
    await pushes.rest.create_subscription("sub", pushConfig={"pushEndpoint": "http://127.0.0.1:9/push?key=secret"})
    answer = await pushes.rest.ok("POST", f"{pushes.rest.subscription()}:testPush", {})
    assert (answer["delivered"], "status" in answer, "secret" in str(answer)) == (False, False, False)
    assert "refused" in answer["detail"]
    await pushes.rest.create_subscription("pulled")
    code, text = await pushes.rest.error("POST", f"{pushes.rest.subscription('pulled')}:testPush", {})
    assert (code, "Nothing is pushed" in text) == ("FAILED_PRECONDITION", True)


# --- limits -----------------------------------------------------------------------------------------------


@side_by_side
async def test_a_rate_limit_holds_messages_back_and_loses_none(pushes: Pushes) -> None:
    """C3: in bursts of at most a second's worth."""
    rate = 10
    path = await pushes.subscribe(**options(messagesPerSecond=rate))
    await pushes.rest.publish(*[str(n) for n in range(35)])
    requests = await pushes.wait_for(path, 35)
    assert sorted(map(pushed, requests), key=int) == [str(n) for n in range(35)]
    times = [r.time for r in requests]
    for i, start in enumerate(times):
        for j in range(i, len(times)):
            assert j - i + 1 <= rate + rate * (times[j] - start + LATE) + 1, (i, j)


@side_by_side
async def test_many_limited_subscriptions_all_get_everything(pushes: Pushes) -> None:
    """C3: some of them once stopped for good, when the room came between two looks at the clock."""

    async def one(n: int) -> None:
        await pushes.rest.create_topic(f"topic{n}")
        path = await pushes.subscribe(name=f"sub{n}", topic=f"topic{n}", **options(messagesPerSecond=20))
        await pushes.rest.publish(*[str(n) for n in range(50)], topic=f"topic{n}")
        assert len(set(await pushes.texts(path, 50))) == 50

    await asyncio.gather(*[one(n) for n in range(40)])


@side_by_side
async def test_a_rate_limit_is_changed_while_messages_wait(pushes: Pushes) -> None:
    """C3: the new one counts at once."""
    path = await pushes.subscribe(**options(messagesPerSecond=0.1))
    await pushes.rest.publish(*[str(n) for n in range(20)])
    await pushes.wait_for(path, 1)
    body = {"subscription": options(messagesPerSecond=1000), "updateMask": "extensions"}
    await pushes.rest.ok("PATCH", pushes.rest.subscription(), body)
    assert len(set(await pushes.texts(path, 20))) == 20


@side_by_side
async def test_no_more_requests_are_outstanding_than_allowed(pushes: Pushes) -> None:
    """C3: the others wait, and none is lost."""
    path = await pushes.subscribe("/delay/0.05", **options(maxOutstandingRequests=3))
    await pushes.rest.publish(*[str(n) for n in range(40)])
    assert len(set(await pushes.texts(path, 40))) == 40
    assert 2 <= (await pushes.sink.count(path))["most_at_once"] <= 3


@side_by_side
async def test_one_outstanding_request_is_possible(pushes: Pushes) -> None:
    """C3: the endpoint then gets one message after another."""
    path = await pushes.subscribe("/delay/0.02", **options(maxOutstandingRequests=1))
    await pushes.rest.publish(*[str(n) for n in range(20)])
    assert len(set(await pushes.texts(path, 20))) == 20
    assert (await pushes.sink.count(path))["most_at_once"] == 1


@side_by_side
async def test_an_endpoint_that_says_when_to_come_back_is_obeyed(pushes: Pushes) -> None:
    """A8: Retry-After, in seconds and as a date."""
    path = await pushes.subscribe("/retry-after/503/2", "/status/200")
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
    asked = time.monotonic()
    dated = await pushes.subscribe(f"/retry-after/429/{quote(date)}", "/status/200", name="dated")
    await pushes.rest.publish("x")
    first, second = await pushes.wait_for(path, 2)
    assert second.time - first.time >= 2 - SLACK
    _, second = await pushes.wait_for(dated, 2)
    assert second.time - asked >= 4 - 1 - SLACK, "the date has whole seconds"


# --- digests ----------------------------------------------------------------------------------------------


async def backlog(pushes: Pushes, *messages: str | Json, digest: Json, **push: Any) -> str:
    """A subscription with these messages waiting, of which digests are pushed from now on."""
    await pushes.rest.create_subscription(**options(digest=digest, **push))
    await pushes.rest.publish(*messages)
    path = pushes.path()
    await pushes.push_to(path)
    return path


@side_by_side
async def test_a_digest_is_full_at_its_count(pushes: Pushes) -> None:
    """C4: what is left over goes when it is old enough; each message once."""
    numbers = [str(n) for n in range(10)]
    path = await backlog(pushes, *numbers, digest={"maxMessages": 4, "maxDelay": "1s"})
    requests = await pushes.wait_for(path, 3)
    assert sorted(map(len, digested(requests))) == [2, 4, 4]
    assert sorted(chain(*digested(requests))) == numbers


@side_by_side
async def test_a_digest_holds_whole_messages(pushes: Pushes) -> None:
    """C4: each as in a request of its own, and the name of the subscription once."""
    await pushes.rest.create_subscription("pulled")
    path = await pushes.subscribe(**options(digest={"maxMessages": 2, "maxDelay": "5s"}))
    await pushes.rest.publish(
        message("a", {"k": "v"}, orderingKey="key"), message("", {"e": ""}, orderingKey="key")
    )
    [request] = await pushes.wait_for(path, 1)
    expected = []
    for received in await pushes.rest.pull("pulled"):
        one = received["message"]
        twice = {"message_id": one["messageId"], "publish_time": one["publishTime"]}
        expected.append({"data": "", **one, **twice})
    assert request.json["subscription"] == pushes.rest.subscription()
    assert [item["message"] for item in request.json["messages"]] == expected
    assert request.headers["content-type"] == "application/json"


@side_by_side
async def test_a_digest_is_full_at_its_bytes(pushes: Pushes) -> None:
    """C4: a message that is larger alone goes alone."""
    messages = [str(n) * 1000 for n in range(6)] + ["large" * 1000]
    path = await backlog(pushes, *messages, digest={"maxMessages": 100, "maxBytes": 2600, "maxDelay": "0.5s"})

    async def everything() -> list[list[str]]:
        found = digested(await pushes.sink.requests(path))
        return found if sum(map(len, found)) >= 7 else []

    found = await eventually(everything)
    assert sorted(chain(*found)) == sorted(messages)
    for one in found:
        assert sum(map(len, one)) <= 2600 or len(one) == 1
    assert any(len(one) == 2 for one in found), "and no smaller than need be"


@side_by_side
async def test_a_digest_goes_when_its_first_message_is_old_enough(pushes: Pushes) -> None:
    """C4: and not before, with what came in the meantime."""
    path = await pushes.subscribe(**options(digest={"maxMessages": 100, "maxDelay": "5s"}))
    began = time.monotonic()
    await pushes.rest.publish("a")
    await pushes.rest.publish("b")
    in_time = time.monotonic() - began < 4  # else the machine is too busy to say
    [request] = await pushes.wait_for(path, 1)
    [texts] = digested([request])
    assert texts == ["a", "b"] or (texts == ["a"] and not in_time)
    assert request.time - began >= 5 - SLACK


@side_by_side
async def test_a_refused_digest_comes_again_whole_and_counts_an_attempt_of_each(pushes: Pushes) -> None:
    """C4, A5: with dead letters after the last."""
    await pushes.rest.create_topic("dead")
    await pushes.rest.create_subscription("pulled", "dead")
    policy = {"deadLetterTopic": pushes.rest.topic("dead"), "maxDeliveryAttempts": 5}
    path = await pushes.subscribe(
        "/status/500", deadLetterPolicy=policy, **options(digest={"maxMessages": 2, "maxDelay": "0.2s"})
    )
    await pushes.rest.publish("a", "b")
    dead = await pushes.rest.pull("pulled", wait=True)
    while len(dead) < 2:
        dead += await pushes.rest.pull("pulled", wait=True)
    assert sorted(text(m) for m in dead) == ["a", "b"]
    attempts: dict[str, list[int]] = {"a": [], "b": []}
    for request in await pushes.sink.requests(path):
        for item in request.json["messages"]:
            attempts[text(item["message"])].append(item["deliveryAttempt"])
    assert attempts == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]}


@side_by_side
async def test_an_answer_names_the_messages_of_a_digest_that_failed(pushes: Pushes) -> None:
    """C4: they come again, the others do not."""
    path = await pushes.subscribe(**options(digest={"maxMessages": 3, "maxDelay": "0.3s"}))
    await pushes.rest.publish("warm up")
    [request] = await pushes.wait_for(path, 1)
    first = int(request.json["messages"][0]["message"]["messageId"])
    body = quote('{"failedMessageIds": ["' + str(first + 2) + '", "of another world"]}')
    await pushes.sink.program(path, f"/body/200/{body}", "/status/200")
    ids = await pushes.rest.publish("a", "b", "c")
    assert ids[1] == str(first + 2)
    requests = await pushes.wait_for(path, 3)
    assert digested(requests)[1:] == [["a", "b", "c"], ["b"]]
    await pushes.settled(path, 3, seconds=SETTLED)


# --- the circuit breaker ----------------------------------------------------------------------------------


@side_by_side
async def test_a_breaker_opens_tries_once_and_closes_after_a_success(pushes: Pushes) -> None:
    """It opens after failures of three different messages; then one request is tried, whatever the backlog."""
    breaker = {"failureThreshold": 3, "openDuration": "1s"}
    once = {"minimumBackoff": "600s", "maximumBackoff": "600s"}  # a message that fails is not tried again here
    fields = {"ackDeadlineSeconds": 600, "retryPolicy": once, **options(circuitBreaker=breaker)}
    path = await pushes.subscribe("/status/500", **fields)
    await pushes.rest.publish("first", "second", "third")
    failed = await pushes.wait_for(path, 3, ended=True)
    gate = pushes.path("")[1:]
    await pushes.sink.program(path, f"/gate/{gate}", "/status/200")
    await pushes.rest.publish(*[str(n) for n in range(20)])
    trial = (await pushes.wait_for(path, 4))[3]
    assert trial.time - failed[2].time >= 1 - SLACK

    async def one_waits() -> bool:
        return any(request.ended is None for request in await pushes.sink.requests(path))

    await eventually(one_waits)
    status = await until_state(pushes, "HALF_OPEN")
    assert status["circuitBreaker"]["consecutiveFailures"] == 3
    await asyncio.sleep(SETTLED)
    requests = await pushes.sink.requests(path)
    assert sum(r.ended is None for r in requests) == 1, "only the trial"
    await pushes.sink.open_gate(gate)
    await until_state(pushes, "CLOSED")
    await pushes.until_taken(path, *[str(n) for n in range(20)])


@side_by_side
async def test_the_default_breaker_does_not_mind_some_failures(pushes: Pushes) -> None:
    """C6: 20 in a row."""
    path = await pushes.subscribe("/status/500", "/status/500", "/status/500", "/status/500", "/status/200")
    await pushes.rest.publish("x")
    await pushes.until_taken(path, "x")
    assert (await pushes.status())["circuitBreaker"]["state"] == "CLOSED"


# --- pauses -----------------------------------------------------------------------------------------------


@side_by_side
async def test_a_paused_subscription_gets_nothing_until_it_is_resumed(pushes: Pushes) -> None:
    """C6: and then all of it."""
    path = await pushes.subscribe()
    await call(pushes, "pausePush", {"reason": "moving house"})
    await pushes.rest.publish(*[str(n) for n in range(20)])
    status = await pushes.status()
    assert status["state"] == "PAUSED"
    assert "moving house" in status["pausedReason"]
    await pushes.settled(path, 0, seconds=SETTLED)
    await call(pushes, "resumePush")
    assert len(set(await pushes.texts(path, 20))) == 20
    assert (await pushes.status())["state"] == "ACTIVE"


@side_by_side
async def test_an_endpoint_that_is_gone_is_paused(pushes: Pushes) -> None:
    """Three messages in a row were answered with 410.  A new push config, or resuming, ends the pause."""
    path = await pushes.subscribe("/status/410")
    await pushes.rest.publish("x", "y", "z")
    assert "410" in (await until_state(pushes, "PAUSED"))["pausedReason"]
    await pushes.settled(path, len(await pushes.sink.requests(path)), seconds=SETTLED)
    await pushes.sink.program(path, "/status/200")
    await call(pushes, "resumePush")
    await pushes.until_taken(path, "x", "y", "z")
    await pushes.sink.program(path, "/status/410")
    await pushes.rest.publish("1", "2", "3")
    await until_state(pushes, "PAUSED")
    other = pushes.path()
    await pushes.push_to(other)
    await pushes.until_taken(other, "1", "2", "3")


@side_by_side
async def test_what_is_not_pushed_is_not_paused(pushes: Pushes) -> None:
    """C6: a pull subscription cannot be, and its status says why."""
    await pushes.rest.create_subscription()
    for verb in ("pausePush", "resumePush"):
        code, _ = await pushes.rest.error("POST", f"{pushes.rest.subscription()}:{verb}", {})
        assert code == "FAILED_PRECONDITION"
        code, _ = await pushes.rest.error("POST", f"{pushes.rest.subscription('missing')}:{verb}", {})
        assert code == "NOT_FOUND"
    assert await pushes.status() == {"state": "PULL"}
    await pushes.rest.ok("POST", f"{pushes.rest.subscription()}:detach")
    assert await pushes.status() == {"state": "DETACHED"}


# --- what is shown ----------------------------------------------------------------------------------------


@side_by_side
async def test_the_status_shows_what_is_outstanding(pushes: Pushes) -> None:
    """C6: docs/operations.md: how many requests are outstanding, about once a second while something changes."""
    path = await pushes.subscribe("/hang")
    await pushes.rest.publish("x")
    await pushes.wait_for(path, 1)

    async def shown() -> bool:
        return (await pushes.status()).get("outstandingRequests") == 1

    await eventually(shown)
    status = await pushes.status()
    assert status["state"] == "ACTIVE"
    assert status["window"] >= 1
    assert status["circuitBreaker"]["state"] == "CLOSED"


@side_by_side
async def test_failures_are_listed_newest_first_with_what_was_answered(pushes: Pushes) -> None:
    """C6: paged; the answer as far as 1,000 characters; without a status if there was none."""
    answers = ["/body/500/went%20wrong%00", f"/body/418/{'x' * 3000}", "/garbage", "/status/200"]
    path = await pushes.subscribe(*answers)
    [message_id] = await pushes.rest.publish("x")
    await pushes.until_taken(path, "x")

    async def listed() -> list[Json]:
        found = await pushes.failures()
        return found if len(found) >= 3 else []

    failures = await eventually(listed)
    assert [failure.get("status") for failure in failures] == [None, 418, 500]
    assert [failure["deliveryAttempt"] for failure in failures] == [3, 2, 1]
    assert {failure["messageId"] for failure in failures} == {message_id}
    assert {failure["endpoint"] for failure in failures} == {pushes.sink.url + path}
    assert failures == sorted(failures, key=lambda failure: failure["failTime"], reverse=True)
    assert failures[0]["detail"]
    assert failures[1]["detail"] == "x" * 1000
    assert failures[2]["detail"].startswith("went wrong")
    name = f"{pushes.rest.subscription()}:pushFailures"
    page = await pushes.rest.ok("GET", name, params={"pageSize": 2})
    rest = await pushes.rest.ok("GET", name, params={"pageSize": 2, "pageToken": page["nextPageToken"]})
    assert page["pushFailures"] + rest["pushFailures"] == failures
    assert "nextPageToken" not in rest
