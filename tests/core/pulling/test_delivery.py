"""What comes on a stream, and what acks, nacks and deadlines on it do.

As Google documents the call:
https://cloud.google.com/pubsub/docs/reference/rpc/google.pubsub.v1#google.pubsub.v1.Subscriber
"""

import asyncio
import itertools
from typing import Any

import pytest

from tests.core.pulling.stream import Properties, Stream, Streams, numbered
from tests.fixtures.broker import PATIENCE_SECONDS, eventually, message, text


async def test_a_backlog_and_what_is_published_later_arrive_in_order(streams: Streams) -> None:
    await streams.subscribe()
    ids = await streams.rest.publish("a")
    ids += await streams.rest.publish(message("b", {"k": "v", "empty": ""}, orderingKey="key"))
    stream = await streams.open()
    a, b = await stream.take(2)
    [c_id] = await streams.rest.publish("c")
    [c] = await stream.take()
    assert [m.message_id for m in (a, b, c)] == [*ids, c_id]
    assert (b.text, b.key, b.attributes) == ("b", "key", {"k": "v", "empty": ""})
    assert len({m.ack_id for m in (a, b, c)}) == 3


async def test_a_waiting_stream_gets_a_message_at_once(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    loop = asyncio.get_running_loop()
    waited = 0.0
    for text_ in numbered(12):
        before = loop.time()
        await streams.rest.publish(text_)
        [came] = await stream.take()
        waited += loop.time() - before
        assert came.text == text_
        await stream.ack([came])
    assert waited < 12 * 0.4  # without a wake-up each would wait for a poll


async def test_what_is_past_its_time_does_not_come(streams: Streams) -> None:
    await streams.subscribe()
    on = {"topic": {"extensions": {"expiry": True, "delay": True}}, "updateMask": "extensions"}
    await streams.rest.ok("PATCH", streams.rest.topic(), on)
    await streams.rest.publish(message("a", {"broker-ttl": "0.1s"}), message("b", {"broker-delay": "0.3s"}))

    async def b_has_come() -> bool:
        return "scheduledMessages" not in await streams.rest.ok("GET", f"{streams.rest.topic()}/scheduled")

    await eventually(b_has_come)
    stream = await streams.open()
    assert [m.text for m in await stream.take()] == ["b"]
    await stream.has_no_more()


async def test_messages_of_megabytes_arrive(streams: Streams) -> None:
    await streams.subscribe()
    for dead_letter in "abcd":
        await streams.rest.publish(dead_letter * 4_000_000)
    stream = await streams.open()
    assert [(m.text[0], m.size) for m in await stream.take(4)] == [
        (dead_letter, 4_000_000) for dead_letter in "abcd"
    ]


async def test_thousands_are_acked_in_one_request(streams: Streams) -> None:
    await streams.subscribe()
    for first in (0, 1000, 2000):
        await streams.rest.publish(*numbered(1000, first))
    stream = await streams.open()
    await stream.ack(await stream.take(3000))
    await eventually(lambda: _all_acked(streams))
    await stream.has_no_more()


async def _all_acked(streams: Streams, name: str = "sub") -> bool:
    return await streams.unacked(name) == 0


async def test_a_nacked_message_comes_again_at_once_under_another_ack_id(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("a")
    stream = await streams.open()
    [first] = await stream.take()
    await stream.nack([first])
    [again] = await stream.take()
    assert again.message_id == first.message_id
    assert again.ack_id != first.ack_id


async def test_acks_nacks_and_deadlines_may_come_in_one_request(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("acked", "nacked", "kept")
    stream = await streams.open()
    acked, nacked, kept = await stream.take(3)
    await stream.send(
        ack_ids=[acked.ack_id],
        modify_deadline_ack_ids=[nacked.ack_id, kept.ack_id],
        modify_deadline_seconds=[0, 600],
    )
    assert await stream.take_texts() == ["nacked"]
    await stream.has_no_more()
    assert await streams.unacked() == 2


@pytest.mark.parametrize("how", ["pull", "stream"])
async def test_ack_ids_from_elsewhere_are_valid(streams: Streams, how: str) -> None:
    await streams.subscribe()
    await streams.rest.publish("acked", "nacked")
    if how == "pull":
        acked, nacked = [m["ackId"] for m in await streams.rest.pull()]
    else:
        acked, nacked = [m.ack_id for m in await (await streams.waiting()).take(2)]
    other = await streams.waiting(connection=1)
    await other.send(ack_ids=[acked])
    await eventually(lambda: _acked_but(streams, 1))
    await other.modify([nacked], 0)
    if how == "pull":
        assert await other.take_texts() == ["nacked"]
    else:
        await eventually(lambda: len(streams.of_all()) == 3)
        assert streams.of_all()[-1].text == "nacked"


async def _acked_but(streams: Streams, count: int) -> bool:
    return await streams.unacked() == count


async def test_unary_calls_settle_what_a_stream_has(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("acked", "nacked")
    stream = await streams.open()
    acked, nacked = await stream.take(2)
    await streams.rest.acknowledge([{"ackId": acked.ack_id}])
    assert await streams.unacked() == 1
    await streams.rest.modify_ack_deadline([{"ackId": nacked.ack_id}], 0)
    assert await stream.take_texts() == ["nacked"]


async def test_a_stale_ack_id_is_ignored(streams: Streams) -> None:
    """Without exactly-once delivery.  It acks nothing: the message has been delivered again."""
    await streams.subscribe()
    await streams.rest.publish("a")
    stream = await streams.open()
    [stale] = await stream.take()
    await stream.nack([stale])
    [fresh] = await stream.take()
    await stream.send(ack_ids=[stale.ack_id])
    await stream.modify([stale], 0)
    await stream.round_trip()
    await stream.has_no_more()
    assert await streams.unacked() == 1
    await stream.ack([fresh])
    await stream.ack([fresh])
    await eventually(lambda: _all_acked(streams))
    await stream.round_trip()


@pytest.mark.parametrize(("exactly_once", "ordered"), list(itertools.product([False, True], repeat=2)))
async def test_every_response_tells_the_subscription_s_properties(
    streams: Streams, exactly_once: bool, ordered: bool
) -> None:
    await streams.subscribe(enableExactlyOnceDelivery=exactly_once, enableMessageOrdering=ordered)
    await streams.rest.publish("a")
    stream = await streams.waiting()
    messages = await stream.take()
    await stream.ack(messages)
    await streams.rest.publish("b")
    await stream.take()
    await stream.round_trip()
    assert set(stream.properties) == {Properties(exactly_once, ordered)}


async def test_the_delivery_attempt_is_told_with_a_dead_letter_policy_only(streams: Streams) -> None:
    await streams.rest.create_topic("dead")
    await streams.subscribe()
    await streams.subscribe("counted", deadLetterPolicy={"deadLetterTopic": streams.rest.topic("dead")})
    await streams.rest.publish("a")
    for name, attempts in (("sub", [0, 0]), ("counted", [1, 2])):
        stream = await streams.open(name)
        first = await stream.take()
        await stream.nack(first)
        assert [m.attempt for m in first + await stream.take()] == attempts


async def test_a_message_that_fails_five_times_on_streams_becomes_a_dead_letter(streams: Streams) -> None:
    rest = streams.rest
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    await streams.subscribe(deadLetterPolicy={"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 5})
    dead_letters = await streams.waiting("dead-sub")
    await rest.publish("poison")
    stream = await streams.open()
    attempts = []
    for _ in range(5):
        [failed] = await stream.take()
        attempts.append(failed.attempt)
        await stream.nack([failed])
    [dead_letter] = await dead_letters.take()
    assert attempts == [1, 2, 3, 4, 5]
    assert dead_letter.text == "poison"
    assert dead_letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert dead_letter.attributes["broker-dead-letter-reason"] == "nack"
    await stream.has_no_more()
    assert await streams.unacked() == 0


async def test_a_stream_gets_what_the_filter_matches(streams: Streams) -> None:
    await streams.subscribe(filter='attributes.env = "prod"')
    stream = await streams.waiting()
    published = []
    for number in range(20):
        env = "prod" if number % 3 else "test"
        await streams.rest.publish(message(f"m{number}", {"env": env}))
        published += [f"m{number}"] if env == "prod" else []
    came = await stream.take(len(published))
    assert [m.text for m in came] == published
    await stream.ack(came)
    await eventually(lambda: _all_acked(streams))
    await stream.has_no_more()


async def test_seeking_back_brings_acked_messages_to_an_open_stream(streams: Streams) -> None:
    await streams.subscribe(retainAckedMessages=True)
    stream = await streams.waiting()
    await streams.rest.publish("a")
    first = await stream.take()
    await stream.ack(first)
    await eventually(lambda: _all_acked(streams))
    seek = f"{streams.rest.subscription()}:seek"
    await streams.rest.ok("POST", seek, {"time": "2020-01-01T00:00:00Z"})
    [again] = await stream.take()
    assert again.message_id == first[0].message_id


# --- changes of the subscription ----------------------------------------------------------------------------


async def _until_seen(streams: Streams, stream: Stream, seen: Any) -> None:
    """Publish until a message shows the change; streams are told of it, and that is not instant."""

    async def shows() -> bool:
        await streams.rest.publish("look")
        [came] = await stream.take()
        await stream.ack([came])
        return bool(seen(came))

    await eventually(shows)


async def test_an_open_stream_turns_exactly_once(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    await streams.update("enableExactlyOnceDelivery", enableExactlyOnceDelivery=True)
    await _until_seen(streams, stream, lambda _: stream.properties[-1] == Properties(True, False))
    await streams.rest.publish("a")
    [came] = await stream.take()
    await stream.ack([came])
    await stream.until(lambda: came.ack_id in stream.acked)


async def test_an_open_stream_counts_attempts_from_the_dead_letter_policy_on(streams: Streams) -> None:
    await streams.rest.create_topic("dead")
    await streams.subscribe()
    stream = await streams.waiting()
    policy = {"deadLetterTopic": streams.rest.topic("dead"), "maxDeliveryAttempts": 5}
    await streams.update("deadLetterPolicy", deadLetterPolicy=policy)
    await _until_seen(streams, stream, lambda came: came.attempt == 1)


async def test_a_new_retry_policy_counts_on_an_open_stream(streams: Streams) -> None:
    await streams.subscribe(retryPolicy={"minimumBackoff": "600s", "maximumBackoff": "600s"})
    await streams.rest.publish("backed off")
    stream = await streams.open()
    await stream.nack(await stream.take())
    await stream.has_no_more()
    await streams.update("retryPolicy")
    await streams.rest.publish("at once")
    [came] = await stream.take()
    await stream.nack([came])
    assert await stream.take_texts() == ["at once"]
    await streams.update("retryPolicy", retryPolicy={"minimumBackoff": "600s", "maximumBackoff": "600s"})
    await streams.rest.publish("backed off too")
    await stream.nack(await stream.take())
    await stream.has_no_more()


# --- heartbeats ---------------------------------------------------------------------------------------------


async def test_heartbeats_are_answered_one_by_one(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    for _ in range(5):
        await stream.round_trip()
    before = stream.empty
    for _ in range(5):
        await stream.send()
    await stream.until(lambda: stream.empty >= before + 5)
    await stream.has_no_more(seconds=0.1)
    assert stream.empty == before + 5


@pytest.mark.parametrize("version", [None, 0])
async def test_heartbeats_of_old_clients_are_not_answered(streams: Streams, version: int | None) -> None:
    await streams.subscribe()
    stream = await streams.open(protocol_version=version)
    for _ in range(5):
        await stream.send()
    await streams.rest.publish("a")
    assert await stream.take_texts() == ["a"]
    await stream.send()
    await stream.has_no_more(seconds=0.1)
    assert stream.empty == 0


async def test_heartbeats_are_answered_while_flow_control_holds_messages_back(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.publish("a", "b")
    stream = await streams.open(max_outstanding_messages=1)
    await stream.take()
    for _ in range(3):
        await stream.round_trip()
    assert len(stream.received) == 1


# --- with unary pulls ---------------------------------------------------------------------------------------


async def test_a_stream_and_a_puller_share_a_subscription(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting(max_outstanding_messages=10, acks_at_once=True)
    pulled: list[str] = []
    published: list[str] = []

    async def pull() -> None:
        while len(pulled) + len(stream.received) < 2000:
            received = await streams.rest.pull(max_messages=10)
            if received:
                await streams.rest.acknowledge(received)
            pulled.extend(text(m) for m in received)

    async def publish() -> None:
        for first in range(0, 2000, 500):
            published.extend(numbered(500, first))
            await streams.rest.publish(*numbered(500, first))

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(publish(), pull())
    assert sorted(pulled + [m.text for m in stream.received]) == sorted(published)
    assert pulled
    assert stream.received
