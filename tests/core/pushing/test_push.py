"""Push over HTTP, to endpoints in another process (A8)."""

import asyncio
import uuid
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.fixtures.broker import Rest, eventually, message
from tests.fixtures.push_sink import PushSink, Received


@pytest.fixture
def path() -> str:
    """Something of this test's own to end paths with."""
    return uuid.uuid4().hex


async def subscribe(rest: Rest, url: str, **fields: object) -> None:
    """With an ack deadline so long that nothing is delivered again because it has passed."""
    await rest.create_topic()
    fields = {"ackDeadlineSeconds": 600} | fields
    await rest.create_subscription(pushConfig={"pushEndpoint": url}, **fields)


def ids(requests: Sequence[Received]) -> list[str]:
    return [request.json["message"]["messageId"] for request in requests]


async def settled(rest: Rest) -> None:
    """Nothing is left to deliver."""

    async def is_empty() -> bool:
        position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
        return int(position["undeliveredMessages"]) == 0

    await eventually(is_empty)


async def test_a_message_is_pushed_once_and_acked_by_a_success(rest: Rest, push_sink: PushSink, path: str) -> None:
    await subscribe(rest, f"{push_sink.url}/status/200/{path}")
    [published] = await rest.publish(message("hello"))
    [request] = await push_sink.wait_for(f"/status/200/{path}", 1)
    assert ids([request]) == [published]
    await settled(rest)
    assert len(await push_sink.requests(f"/status/200/{path}")) == 1


async def test_many_messages_are_pushed_side_by_side(rest: Rest, push_sink: PushSink, path: str) -> None:
    await subscribe(rest, f"{push_sink.url}/delay/0.02/{path}")
    published = await rest.publish(*[message(str(n)) for n in range(500)])
    requests = await push_sink.wait_for(f"/delay/0.02/{path}", 500)
    await settled(rest)
    assert sorted(ids(requests)) == sorted(published)
    open_at_once = max(
        sum(other.time <= request.time < (other.ended or 0) for other in requests) for request in requests
    )
    assert open_at_once > 8, "the window grows"


async def test_a_refused_message_is_pushed_again(rest: Rest, push_sink: PushSink, path: str) -> None:
    await push_sink.program(f"/mine/{path}", "/status/500", "/status/503", "/status/204")
    await subscribe(rest, f"{push_sink.url}/mine/{path}")
    await rest.publish(message("hello"))
    requests = await push_sink.wait_for(f"/mine/{path}", 3)
    await settled(rest)
    assert len(set(ids(requests))) == 1
    first, second, third = (request.time for request in requests)
    assert second - first >= 0.1
    assert third - second >= 0.2, "push backoff doubles"


@pytest.mark.slow
@pytest.mark.ci
async def test_a_slow_endpoint_is_believed_late(rest: Rest, push_sink: PushSink, path: str) -> None:
    """A success after the ack deadline still counts: no endless duplicates."""
    await subscribe(rest, f"{push_sink.url}/delay/11/{path}", ackDeadlineSeconds=10)
    await rest.publish(message("hello"))
    await push_sink.wait_for(f"/delay/11/{path}", 2)
    await settled(rest)
    assert len(await push_sink.requests(f"/delay/11/{path}")) == 2


async def test_modify_push_config_switches_at_once(rest: Rest, push_sink: PushSink, path: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    before = await rest.publish(message("1"))
    url = f"{push_sink.url}/status/200/{path}"
    switch = f"{rest.subscription()}:modifyPushConfig"
    await rest.ok("POST", switch, {"pushConfig": {"pushEndpoint": url}})
    during = await rest.publish(message("2"))
    requests = await push_sink.wait_for(f"/status/200/{path}", 2)
    assert sorted(ids(requests)) == sorted([*before, *during])
    await settled(rest)
    await rest.ok("POST", switch, {})
    after = await rest.publish(message("3"))
    received = await rest.pull()
    assert [m["message"]["messageId"] for m in received] == after
    assert len(await push_sink.requests(f"/status/200/{path}")) == 2


async def test_messages_of_a_key_are_pushed_one_at_a_time(rest: Rest, push_sink: PushSink, path: str) -> None:
    await subscribe(rest, f"{push_sink.url}/delay/0.05/{path}", enableMessageOrdering=True)
    a = await rest.publish(*[message(str(n), orderingKey="a") for n in range(5)])
    b = await rest.publish(*[message(str(n), orderingKey="b") for n in range(5)])
    requests = await push_sink.wait_for(f"/delay/0.05/{path}", 10, ended=True)
    for key in (a, b):
        of_key = [request for request in requests if ids([request])[0] in key]
        assert ids(of_key) == key
        for earlier, later in pairwise(of_key):
            assert earlier.ended is not None
            assert earlier.ended <= later.time
    await settled(rest)


async def test_a_failing_endpoint_does_not_delay_another(rest: Rest, push_sink: PushSink, path: str) -> None:
    await rest.create_topic()
    for n in range(10):
        await rest.create_subscription(f"bad{n}", pushConfig={"pushEndpoint": f"{push_sink.url}/hang/{path}{n}"})
    await rest.create_subscription("good", pushConfig={"pushEndpoint": f"{push_sink.url}/status/200/{path}"})
    await rest.publish(*[message(str(n)) for n in range(100)])
    await push_sink.wait_for(f"/status/200/{path}", 100)


async def test_what_failed_too_often_goes_to_the_dead_letter_topic(
    rest: Rest, push_sink: PushSink, path: str
) -> None:
    await rest.create_topic("dead")
    await rest.create_subscription("undertaker", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 5}
    await subscribe(rest, f"{push_sink.url}/status/500/{path}", deadLetterPolicy=policy)
    await rest.publish(message("hello"))
    requests = await push_sink.wait_for(f"/status/500/{path}", 5)
    [dead] = await eventually(lambda: rest.pull("undertaker"))
    assert dead["message"]["attributes"]["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    await asyncio.sleep(0)
    assert len(await push_sink.requests(f"/status/500/{path}")) == len(requests) == 5
