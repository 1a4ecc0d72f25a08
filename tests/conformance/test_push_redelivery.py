"""What Google's service promises of what is pushed again: delays, dead letters, order, timeouts.

As https://cloud.google.com/pubsub/docs/push and https://cloud.google.com/pubsub/docs/handling-failures say;
docs/compared-with-the-emulator.md has what the emulator does instead.
"""

import asyncio
from itertools import pairwise

import pytest

from tests.fixtures.broker import Json, message, text
from tests.fixtures.push_sink import Received
from tests.fixtures.pushes import Pushes, pushed, side_by_side

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACK_DEADLINE = 10.0  # seconds: the shortest there is
SLACK = 0.05  # seconds between the broker's clock and ours, at most
LATE = 6.0  # seconds that a request may take to arrive, on a machine that has other things to do
ORDERED: Json = {"enableMessageOrdering": True}


def gaps(requests: list[Received]) -> list[float]:
    """Seconds from an answer to the next request."""
    return [after.time - (before.ended or before.time) for before, after in pairwise(requests)]


# --- delays -----------------------------------------------------------------------------------------------


@side_by_side
async def test_pushes_that_fail_are_repeated_after_growing_delays(pushes: Pushes) -> None:
    """A4, A8: exponential, from 100 ms; the emulator stays at one second for ever."""
    path = await pushes.subscribe("/status/500")
    await pushes.rest.publish("x")
    found = gaps(await pushes.wait_for(path, 7))
    assert all(gap >= 0.05 * 2**n for n, gap in enumerate(found)), found  # half of it: our clock may be late


@side_by_side
async def test_successes_end_the_backoff(pushes: Pushes) -> None:
    """A8: it follows the share of nacks, so many successes bring it down to nothing."""
    path = await pushes.subscribe(*["/status/500"] * 4, *["/status/200"] * 20, "/status/500", "/status/200")
    await pushes.rest.publish("first")
    await pushes.until_taken(path, "first")
    await pushes.rest.publish(*[str(n) for n in range(19)])
    await pushes.wait_for(path, 4 + 20, ended=True)
    await pushes.rest.publish("second")
    await pushes.until_taken(path, "second")
    found = gaps(await pushes.sink.requests(path))
    assert found[-1] < max(found[:4]), found


@side_by_side
async def test_a_retry_policy_delays_pushes_beyond_the_backoff(pushes: Pushes) -> None:
    """A4: the larger of both, from the first failure on, and never early."""
    policy = {"minimumBackoff": "1s", "maximumBackoff": "2s"}
    path = await pushes.subscribe("/status/500", retryPolicy=policy)
    await pushes.rest.publish("x")
    found = gaps(await pushes.wait_for(path, 4))
    for gap, least in zip(found, (1, 2, 2), strict=True):
        assert gap >= least - SLACK
        assert gap < least + LATE, "no fixed steps of its own"


@side_by_side
async def test_a_message_in_backoff_does_not_keep_others_that_long(pushes: Pushes) -> None:
    """A4: the retry policy is of the message."""
    path = await pushes.subscribe(
        "/status/500", "/status/200", retryPolicy={"minimumBackoff": "8s", "maximumBackoff": "600s"}
    )
    await pushes.rest.publish("fails")
    await pushes.wait_for(path, 1, ended=True)
    await pushes.rest.publish(*"abcdef")
    assert sorted(await pushes.texts(path, 7)) == sorted(["fails", *"abcdef"])
    requests = await pushes.wait_for(path, 8)
    assert pushed(requests[7]) == "fails"
    assert requests[7].time - requests[0].time >= 8 - SLACK


# --- dead letters -----------------------------------------------------------------------------------------


@side_by_side
async def test_after_the_last_attempt_a_message_is_a_dead_letter_and_pushed_no_more(pushes: Pushes) -> None:
    """A5: exactly maxDeliveryAttempts pushes; what arrives tells of it; the others are not held up."""
    await pushes.rest.create_topic("dead")
    await pushes.rest.create_subscription("pulled", "dead")
    dead = await pushes.subscribe(name="dead-sub", topic="dead")
    policy = {"deadLetterTopic": pushes.rest.topic("dead"), "maxDeliveryAttempts": 5}
    path = await pushes.subscribe(*["/status/500"] * 5, "/status/200", deadLetterPolicy=policy)
    [message_id] = await pushes.rest.publish(message("poison", {"k": "v"}, orderingKey="key"))
    [request] = await pushes.wait_for(dead, 1)
    await pushes.rest.publish("good")
    await pushes.until_taken(path, "good")
    tried = await pushes.sink.requests(path)
    assert [(pushed(r), r.json["deliveryAttempt"]) for r in tried] == [
        *(("poison", n) for n in range(1, 6)),
        ("good", 1),
    ]
    forwarded = request.json["message"]
    attributes = forwarded["attributes"]
    assert pushed(request) == "poison"
    assert forwarded["messageId"] != message_id
    assert attributes["k"] == "v"
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert attributes["CloudPubSubDeadLetterSourceSubscription"] == "sub"
    assert attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] == pushes.rest.project.split("/")[1]
    assert attributes["CloudPubSubDeadLetterSourceTopicPublishTime"]
    assert [text(m) for m in await pushes.rest.pull("pulled")] == ["poison"]


@side_by_side
async def test_a_dead_letter_lets_the_next_of_its_key_go(pushes: Pushes) -> None:
    """A5, A6: until then it holds its key; afterwards the rest comes in order."""
    await pushes.rest.create_topic("dead")
    await pushes.rest.create_subscription("pulled", "dead")
    policy = {"deadLetterTopic": pushes.rest.topic("dead"), "maxDeliveryAttempts": 5}
    path = await pushes.subscribe(*["/status/500"] * 5, "/status/200", deadLetterPolicy=policy, **ORDERED)
    await pushes.rest.publish(*[message(f"k{n}", orderingKey="k") for n in range(1, 4)])
    await pushes.until_taken(path, "k3")
    assert await pushes.texts(path) == ["k1"] * 5 + ["k2", "k3"]
    assert [text(m) for m in await pushes.rest.pull("pulled")] == ["k1"]


@side_by_side
async def test_deadlines_that_pass_count_as_attempts(pushes: Pushes) -> None:
    """A5: an endpoint that hangs uses up attempts as one that refuses does."""
    await pushes.rest.create_topic("dead")
    policy = {"deadLetterTopic": pushes.rest.topic("dead"), "maxDeliveryAttempts": 5}
    path = await pushes.subscribe("/hang", "/status/200", deadLetterPolicy=policy, ackDeadlineSeconds=10)
    await pushes.rest.publish("x")
    assert [r.json["deliveryAttempt"] for r in await pushes.wait_for(path, 2)] == [1, 2]


# --- order ------------------------------------------------------------------------------------------------


def check_order(requests: list[Received], **published: list[str]) -> None:
    """One request of a key at a time, the next only after a success, and all in order."""
    for key, texts in published.items():
        ours = [r for r in requests if r.json["message"].get("orderingKey") == key]
        assert [pushed(r) for r in ours if r.status == 200] == texts
        for before, after in pairwise(ours):
            assert before.ended is not None
            assert before.ended <= after.time, f"{pushed(before)} and {pushed(after)} at once"
            wanted = texts.index(pushed(before)) + (before.status == 200)
            assert pushed(after) == texts[wanted]


@side_by_side
async def test_one_request_of_a_key_is_out_at_a_time(pushes: Pushes) -> None:
    """A6: the next is sent once the one before was answered."""
    path = await pushes.subscribe("/delay/0.02", **ORDERED)
    published = {key: [f"{key}{n}" for n in range(8)] for key in "abc"}
    for key, texts in published.items():
        await pushes.rest.publish(*[message(one, orderingKey=key) for one in texts])
    await pushes.rest.publish("without a key", "without either")
    check_order(await pushes.wait_for(path, 26, ended=True), **published)


@side_by_side
async def test_a_key_that_waits_for_its_answer_holds_no_other_key(pushes: Pushes) -> None:
    """A6: and no message without a key."""
    gate = pushes.path("")[1:]
    path = await pushes.subscribe(f"/gate/{gate}", "/status/200", **ORDERED)
    await pushes.rest.publish(message("a1", orderingKey="a"))
    await pushes.wait_for(path, 1)
    await pushes.rest.publish(message("a2", orderingKey="a"), message("a3", orderingKey="a"))
    for key in "bcd":
        await pushes.rest.publish(message(f"{key}1", orderingKey=key), message(f"{key}2", orderingKey=key))
    await pushes.rest.publish("no key")
    await pushes.until_taken(path, "b2", "c2", "d2", "no key")
    assert "a2" not in await pushes.texts(path)
    await pushes.sink.open_gate(gate)
    await pushes.until_taken(path, "a3")
    check_order(await pushes.sink.requests(path), a=["a1", "a2", "a3"], b=["b1", "b2"])


@side_by_side
async def test_a_key_that_fails_stays_in_order(pushes: Pushes) -> None:
    """A6: nothing of the key is sent before what failed has succeeded."""
    answers = ["/status/500", "/status/500", "/status/200", "/status/503", "/reset", "/status/200"] * 2
    path = await pushes.subscribe(*answers, **ORDERED)
    published = {key: [f"{key}{n}" for n in range(4)] for key in "ab"}
    for key, texts in published.items():
        await pushes.rest.publish(*[message(one, orderingKey=key) for one in texts])
    await pushes.until_taken(path, "a3", "b3")
    check_order(await pushes.sink.requests(path), **published)


# --- timeouts ---------------------------------------------------------------------------------------------


@side_by_side
async def test_a_request_without_an_answer_is_repeated_after_the_ack_deadline(pushes: Pushes) -> None:
    """A8: the deadline is the request's timeout; also where an answer begins and does not end."""
    paths = [
        await pushes.subscribe(behaviour, "/status/200", name=f"sub{n}", ackDeadlineSeconds=10)
        for n, behaviour in enumerate(("/hang", "/slow-headers", "/status/100"))
    ]
    await pushes.rest.publish("x")
    for path in paths:
        first, second = await pushes.wait_for(path, 2)
        assert second.time - first.time >= ACK_DEADLINE - LATE / 2, "a late first makes it look early"
        assert second.time - first.time < ACK_DEADLINE + LATE


@pytest.mark.slow
@pytest.mark.ci
@side_by_side
async def test_an_endpoint_slower_than_the_ack_deadline_gets_no_endless_duplicates(pushes: Pushes) -> None:
    """A8: a late success counts while the call is open; one duplicate at most, then silence."""
    path = await pushes.subscribe("/delay/12", ackDeadlineSeconds=10)
    await pushes.rest.publish("slow")
    [first] = await pushes.wait_for(path, 1)
    await asyncio.sleep(2.5 * ACK_DEADLINE)
    requests = await pushes.sink.requests(path)
    assert len(requests) <= 2
    assert requests[0].time == first.time
    assert any(r.status == 200 for r in requests), "and the call was left open for its answer"


@pytest.mark.slow
@pytest.mark.ci
@side_by_side
async def test_an_answer_just_before_the_ack_deadline_acknowledges(pushes: Pushes) -> None:
    """A8: the message is not sent again."""
    path = await pushes.subscribe("/delay/8.5", ackDeadlineSeconds=10)
    await pushes.rest.publish("x")
    await pushes.wait_for(path, 1, ended=True)
    await pushes.settled(path, 1, seconds=ACK_DEADLINE)


@side_by_side
async def test_a_longer_ack_deadline_is_a_longer_timeout(pushes: Pushes) -> None:
    """A8: the endpoint may take as long as the deadline."""
    path = await pushes.subscribe("/delay/14", ackDeadlineSeconds=20)
    await pushes.rest.publish("x")
    [request] = await pushes.wait_for(path, 1, ended=True)
    assert request.status == 200
    await pushes.settled(path, 1, seconds=8)


@side_by_side
async def test_what_was_acknowledged_never_comes_again(pushes: Pushes) -> None:
    """A8: not after an ack deadline either."""
    path = await pushes.subscribe(ackDeadlineSeconds=10)
    await pushes.rest.publish(*[str(n) for n in range(500)])
    await pushes.wait_for(path, 500)
    requests = await pushes.settled(path, 500, seconds=1.3 * ACK_DEADLINE)
    assert len({pushed(request) for request in requests}) == 500


# --- bulkheads --------------------------------------------------------------------------------------------


@side_by_side
async def test_endpoints_that_hang_do_not_delay_those_that_answer(pushes: Pushes) -> None:
    """A8, C6: 20 of each on one topic; the good ones have everything before a single hanging call times out."""
    hanging = [await pushes.subscribe("/hang", name=f"bad{n}") for n in range(20)]
    good = [await pushes.subscribe(name=f"good{n}") for n in range(20)]
    for n in range(10):
        await pushes.rest.publish(f"{n}a", f"{n}b")
    arrived = [await pushes.wait_for(path, 20) for path in good]
    assert all(len({pushed(r) for r in requests}) == len(requests) == 20 for requests in arrived)
    stuck = [await pushes.wait_for(path, 1) for path in hanging]
    assert max(requests[-1].time for requests in arrived) < min(r[0].time for r in stuck) + ACK_DEADLINE
