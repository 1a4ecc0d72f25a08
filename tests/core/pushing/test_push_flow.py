"""How pushes are held back, collected and given up (A8, C3, C4, C6)."""

import asyncio
import base64
import time
import uuid

import pytest

from tests.core.pushing.test_push import ids, settled, subscribe
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.push_sink import PushSink


@pytest.fixture
def path() -> str:
    """Something of this test's own to end paths with."""
    return uuid.uuid4().hex


async def status(rest: Rest) -> Json:
    found: Json = await rest.ok("GET", f"{rest.subscription()}:pushStatus")
    return found


async def failures(rest: Rest) -> list[Json]:
    found: list[Json] = (await rest.ok("GET", f"{rest.subscription()}:pushFailures")).get("pushFailures", [])
    return found


async def test_a_rate_limit_holds_back_and_loses_nothing(rest: Rest, push_sink: PushSink, path: str) -> None:
    """C3: a token bucket that holds a second's worth."""
    await subscribe(rest, f"{push_sink.url}/status/200/{path}", extensions={"push": {"messagesPerSecond": 20}})
    await rest.publish(*[message(str(n)) for n in range(50)])
    requests = await push_sink.wait_for(f"/status/200/{path}", 50)
    await settled(rest)
    times = sorted(request.time for request in requests)
    assert times[-1] - times[0] >= 30 / 20 * 0.95, "20 at once, then 20 a second"
    assert len(requests) == 50


async def test_a_cap_on_requests_holds(rest: Rest, push_sink: PushSink, path: str) -> None:
    """C3: no more requests at a time than the subscription says."""
    await subscribe(rest, f"{push_sink.url}/delay/0.02/{path}", extensions={"push": {"maxOutstandingRequests": 2}})
    await rest.publish(*[message(str(n)) for n in range(30)])
    requests = await push_sink.wait_for(f"/delay/0.02/{path}", 30, ended=True)
    most = max(sum(o.time <= r.time < (o.ended or 0) for o in requests) for r in requests)
    assert most == 2
    await settled(rest)


async def test_retry_after_is_honoured(rest: Rest, push_sink: PushSink, path: str) -> None:
    await push_sink.program(f"/mine/{path}", "/retry-after/503/1", "/status/200")
    await subscribe(rest, f"{push_sink.url}/mine/{path}")
    await rest.publish(message("hello"))
    first, second = await push_sink.wait_for(f"/mine/{path}", 2)
    assert second.time - first.time >= 1
    await settled(rest)


async def test_gone_pauses_the_subscription_until_it_is_resumed(rest: Rest, push_sink: PushSink, path: str) -> None:
    """Once three messages in a row were answered with 410: one alone may be the message's fault."""
    await push_sink.program(f"/mine/{path}", "/status/410")
    await subscribe(rest, f"{push_sink.url}/mine/{path}")
    await rest.publish(message("1"))
    await push_sink.wait_for(f"/mine/{path}", 4)
    assert (await status(rest))["state"] == "ACTIVE"
    await rest.publish(message("2"), message("3"))

    async def paused() -> bool:
        return (await status(rest))["state"] == "PAUSED"

    await eventually(paused)
    count = len(await push_sink.requests(f"/mine/{path}"))
    await rest.publish(message("4"))
    assert "410" in (await status(rest))["pausedReason"]
    assert len(await push_sink.requests(f"/mine/{path}")) == count
    await push_sink.program(f"/mine/{path}", "/status/200")
    await rest.ok("POST", f"{rest.subscription()}:resumePush", {})
    await settled(rest)


@pytest.mark.parametrize("behaviour", ["/status/400", "/status/410", "/status/500"])
async def test_one_message_that_always_fails_does_not_delay_the_others(
    rest: Rest, push_sink: PushSink, path: str, behaviour: str
) -> None:
    await subscribe(rest, f"{push_sink.url}/poison/{behaviour.removeprefix('/status/')}/{path}")
    await rest.publish(message("1", attributes={"is": "poison"}), *[message(str(n)) for n in range(280)])

    async def poison_alone() -> bool:
        position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
        return int(position["undeliveredMessages"]) == 1

    await eventually(poison_alone)
    assert (await status(rest))["state"] == "ACTIVE"
    assert (await status(rest))["circuitBreaker"]["state"] == "CLOSED"


async def test_the_circuit_breaker_opens_is_seen_and_closes_again(
    rest: Rest, push_sink: PushSink, path: str
) -> None:
    """C6: closed, open after so many failures, one trial, closed."""
    await push_sink.program(f"/mine/{path}", *["/status/500"] * 3, "/status/200")
    breaker = {"failureThreshold": 3, "openDuration": "1s"}
    await subscribe(rest, f"{push_sink.url}/mine/{path}", extensions={"push": {"circuitBreaker": breaker}})
    await rest.publish(*[message(str(n)) for n in range(3)])
    requests = await push_sink.wait_for(f"/mine/{path}", 3)

    async def state() -> str:
        found: str = (await status(rest)).get("circuitBreaker", {}).get("state", "")
        return found

    async def is_open() -> bool:
        return await state() == "OPEN"

    await eventually(is_open)
    requests = await push_sink.wait_for(f"/mine/{path}", 6)
    assert requests[3].time - requests[2].time >= 1, "nothing while it is open"
    await settled(rest)

    async def is_closed() -> bool:
        return await state() == "CLOSED"

    await eventually(is_closed)


async def test_what_failed_is_told(rest: Rest, push_sink: PushSink, path: str) -> None:
    """The attempt log: time, status, latency, the beginning of the answer."""
    await push_sink.program(f"/mine/{path}", "/body/500/out%20of%20order", "/garbage", "/status/200")
    await subscribe(rest, f"{push_sink.url}/mine/{path}")
    [published] = await rest.publish(message("hello"))

    async def attribution() -> list[Json]:
        found = await failures(rest)
        return found if len(found) == 2 else []

    garbage, refused = await eventually(attribution)
    assert (refused["status"], refused["detail"]) == (500, "out of order")
    assert refused["messageId"] == garbage["messageId"] == published
    assert refused["endpoint"].endswith(f"/mine/{path}")
    assert "status" not in garbage
    assert "not HTTP" in garbage["detail"]


async def test_a_digest_carries_many_messages_when_they_are_enough(
    rest: Rest, push_sink: PushSink, path: str
) -> None:
    """C4: by count."""
    digest = {"maxMessages": 10, "maxDelay": "600s"}
    await subscribe(rest, f"{push_sink.url}/status/200/{path}", extensions={"push": {"digest": digest}})
    published = await rest.publish(*[message(str(n)) for n in range(25)])
    requests = await push_sink.wait_for(f"/status/200/{path}", 2)
    delivered = [item["message"]["messageId"] for request in requests for item in request.json["messages"]]
    assert [len(request.json["messages"]) for request in requests] == [10, 10]
    assert sorted(delivered) == sorted(published[:20])
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert position["undeliveredMessages"] >= 5, "five wait for others"


async def test_a_digest_leaves_when_its_oldest_message_has_waited_long_enough(
    rest: Rest, push_sink: PushSink, path: str
) -> None:
    """C4: by age."""
    digest = {"maxMessages": 1000, "maxDelay": "0.5s"}
    await subscribe(rest, f"{push_sink.url}/status/200/{path}", extensions={"push": {"digest": digest}})
    started = time.monotonic()
    await rest.publish(message("1"))
    await rest.publish(message("2"))
    [request] = await push_sink.wait_for(f"/status/200/{path}", 1)
    assert request.time - started >= 0.5
    assert [base64.b64decode(item["message"]["data"]) for item in request.json["messages"]] == [b"1", b"2"]
    await settled(rest)


async def test_a_digest_may_be_refused_in_part(rest: Rest, push_sink: PushSink, path: str) -> None:
    """C4: what the answer names as failed comes again, the rest is acked."""
    digest = {"maxMessages": 3, "maxDelay": "0.2s"}
    await rest.create_topic()
    await rest.create_subscription()
    published = await rest.publish(*[message(str(n)) for n in range(3)])
    body = f'{{"failedMessageIds": ["{published[1]}"]}}'.replace('"', "%22").replace(" ", "%20")
    await push_sink.program(f"/mine/{path}", f"/body/200/{body}", "/status/200")
    update = {
        "extensions": {"push": {"digest": digest}},
        "pushConfig": {"pushEndpoint": f"{push_sink.url}/mine/{path}"},
    }
    await rest.ok("PATCH", rest.subscription(), {"subscription": update, "updateMask": "extensions,pushConfig"})
    _, again = await push_sink.wait_for(f"/mine/{path}", 2)
    assert [item["message"]["messageId"] for item in again.json["messages"]] == [published[1]]
    await settled(rest)


async def test_only_what_the_filter_matches_is_pushed(rest: Rest, push_sink: PushSink, path: str) -> None:
    await subscribe(rest, f"{push_sink.url}/status/200/{path}", filter='attributes.env = "prod"')
    await rest.publish(*[message(str(n), {"env": "test"}) for n in range(20)])
    wanted = await rest.publish(message("wanted", {"env": "prod"}))
    assert ids(await push_sink.wait_for(f"/status/200/{path}", 1)) == wanted
    await settled(rest)
    assert len(await push_sink.requests(f"/status/200/{path}")) == 1


async def test_a_retry_policy_comes_on_top_of_the_push_backoff(rest: Rest, push_sink: PushSink, path: str) -> None:
    await push_sink.program(f"/mine/{path}", "/status/500", "/status/500", "/status/200")
    policy = {"minimumBackoff": "0.8s", "maximumBackoff": "10s"}
    await subscribe(rest, f"{push_sink.url}/mine/{path}", retryPolicy=policy)
    await rest.publish(message("hello"))
    first, second, third = await push_sink.wait_for(f"/mine/{path}", 3)
    assert second.time - first.time >= 0.8
    assert third.time - second.time >= 1.6
    await settled(rest)


async def test_an_ordered_subscription_retries_a_key_in_order(rest: Rest, push_sink: PushSink, path: str) -> None:
    await push_sink.program(f"/mine/{path}", "/status/200", "/status/500", "/status/200")
    await subscribe(rest, f"{push_sink.url}/mine/{path}", enableMessageOrdering=True)
    published = await rest.publish(*[message(str(n), orderingKey="k") for n in range(4)])
    requests = await push_sink.wait_for(f"/mine/{path}", 5)
    assert ids(requests) == [published[0], published[1], published[1], published[2], published[3]]
    await settled(rest)


async def test_seek_pushes_again(rest: Rest, push_sink: PushSink, path: str) -> None:
    await subscribe(rest, f"{push_sink.url}/status/200/{path}", retainAckedMessages=True)
    published = await rest.publish(message("1"), message("2"))
    await push_sink.wait_for(f"/status/200/{path}", 2)
    await settled(rest)
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    requests = await push_sink.wait_for(f"/status/200/{path}", 4)
    assert sorted(ids(requests)) == sorted(published * 2)
    await asyncio.sleep(0)


async def test_what_is_urgent_passes_what_waits_to_be_pushed(rest: Rest, push_sink: PushSink, path: str) -> None:
    """But for what the broker has taken for the endpoint already."""
    await rest.create_topic(extensions={"priorities": 2})
    push = {"push": {"maxOutstandingRequests": 1}}
    await rest.create_subscription(
        pushConfig={"pushEndpoint": f"{push_sink.url}/delay/0.02/{path}"}, ackDeadlineSeconds=600, extensions=push
    )
    low = await rest.publish(*[message(str(n)) for n in range(200)])
    await push_sink.wait_for(f"/delay/0.02/{path}", 1)
    [urgent] = await rest.publish(message("urgent", {"broker-priority": "0"}))
    await settled(rest)
    order = ids(await push_sink.requests(f"/delay/0.02/{path}"))
    assert sorted(order) == sorted([*low, urgent])
    assert order.index(urgent) < len(order) / 2
