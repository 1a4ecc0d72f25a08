"""What a request on a stream may say, and what ends the stream.

As Google documents StreamingPullRequest:
https://cloud.google.com/pubsub/docs/reference/rpc/google.pubsub.v1#streamingpullrequest
"""

from typing import Any

import pytest

from tests.core.pulling.stream import Ended, Stream, Streams

NO_DEADLINE = "first message must set stream_ack_deadline_seconds"
WRONG_DEADLINE = "stream_ack_deadline_seconds must be between 10 and 600 seconds"


def _assert_refused(ended: Ended, message: str) -> None:
    """The emulator's words; what the broker adds comes after them."""
    assert ended.code == "INVALID_ARGUMENT"
    assert ended.message.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subscription": None}, "first message must set subscription"),
        ({"stream_ack_deadline_seconds": None}, NO_DEADLINE),
        ({"stream_ack_deadline_seconds": 9}, WRONG_DEADLINE),
        ({"stream_ack_deadline_seconds": 601}, WRONG_DEADLINE),
        ({"stream_ack_deadline_seconds": -1}, WRONG_DEADLINE),
    ],
)
async def test_the_first_request_needs_a_subscription_and_an_ack_deadline(
    streams: Streams, fields: dict[str, Any], message: str
) -> None:
    await streams.subscribe()
    _assert_refused(await (await streams.open(**fields)).ended(), message)


@pytest.mark.parametrize("seconds", [10, 600])
async def test_the_shortest_and_the_longest_ack_deadline_are_taken(streams: Streams, seconds: int) -> None:
    await streams.subscribe()
    await streams.waiting(stream_ack_deadline_seconds=seconds)


async def test_a_heartbeat_does_for_no_first_request(streams: Streams) -> None:
    nothing: dict[str, Any] = {"subscription": None, "stream_ack_deadline_seconds": None, "protocol_version": None}
    stream = await streams.open(**nothing)
    _assert_refused(await stream.ended(), "first message must set subscription")


async def test_a_stream_without_any_request_ends(streams: Streams) -> None:
    stream = Stream(streams.call())
    await stream.half_close()
    assert (await stream.ended()).code in ("OK", "INVALID_ARGUMENT")


async def test_the_id_of_a_client_is_bounded(streams: Streams) -> None:
    """It is remembered with the ordering keys that the client had."""
    await streams.subscribe()
    await streams.waiting(client_id="c" * 1_024)
    ended = await (await streams.open(client_id="c" * 1_025)).ended()
    assert (ended.code, "client_id has 1025 characters" in ended.message) == ("INVALID_ARGUMENT", True)


async def test_what_is_no_name_of_a_subscription_is_refused(streams: Streams) -> None:
    odd = streams.rest.subscription("123")
    for name in (
        "nonsense",
        streams.rest.topic(),
        "projects//subscriptions/sub",
        odd,
        "projects/a b/subscriptions/s",
    ):
        ended = await (await streams.open(subscription=name)).ended()
        assert ended.code == "INVALID_ARGUMENT"
        assert ended.message.startswith("Invalid [subscriptions] name: ")


async def test_a_subscription_that_does_not_exist_is_not_found(streams: Streams) -> None:
    ended = await (await streams.open("none")).ended()
    assert ended.code == "NOT_FOUND"
    assert ended.message.startswith("Subscription does not exist (resource=none)")


async def test_a_push_subscription_has_no_streams(streams: Streams) -> None:
    await streams.subscribe(pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
    ended = await (await streams.open()).ended()
    assert ended.code == "FAILED_PRECONDITION"
    assert "push" in ended.message


async def test_a_detached_subscription_has_no_streams(streams: Streams) -> None:
    await streams.subscribe()
    await streams.rest.ok("POST", f"{streams.rest.subscription()}:detach")
    ended = await (await streams.open()).ended()
    assert ended.code == "FAILED_PRECONDITION"
    assert "detached" in ended.message


async def test_a_later_request_may_not_name_a_subscription(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    await stream.send(subscription=streams.rest.subscription())
    _assert_refused(await stream.ended(), "subscription may only be set in first message")


@pytest.mark.parametrize("field", ["max_outstanding_messages", "max_outstanding_bytes", "protocol_version"])
@pytest.mark.parametrize("before", [None, 1])
async def test_flow_control_and_protocol_are_for_the_first_request_only(
    streams: Streams, field: str, before: int | None
) -> None:
    await streams.subscribe()
    first: dict[str, Any] = {field: before}
    later: dict[str, Any] = {field: 1}
    stream = await streams.open(**first)
    await stream.send(**later)
    ended = await stream.ended()
    assert ended.code == "INVALID_ARGUMENT"
    assert field in ended.message


@pytest.mark.parametrize("seconds", [-1, 1, 9, 601])
async def test_a_later_ack_deadline_keeps_within_the_limits_too(streams: Streams, seconds: int) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    await stream.send(stream_ack_deadline_seconds=seconds)
    _assert_refused(await stream.ended(), WRONG_DEADLINE)


@pytest.mark.parametrize(("ack_ids", "seconds"), [(0, 1), (1, 0), (2, 1), (1, 2)])
async def test_deadline_changes_need_as_many_ack_ids_as_deadlines(
    streams: Streams, ack_ids: int, seconds: int
) -> None:
    await streams.subscribe()
    await streams.rest.publish("a", "b")
    stream = await streams.open()
    names = [message.ack_id for message in await stream.take(2)]
    await stream.send(modify_deadline_ack_ids=names[:ack_ids], modify_deadline_seconds=[30] * seconds)
    _assert_refused(await stream.ended(), "ack IDs and deadlines must have the same size")


@pytest.mark.parametrize("seconds", [-1, 601])
async def test_a_message_s_deadline_is_between_0_and_600_seconds(streams: Streams, seconds: int) -> None:
    await streams.subscribe()
    await streams.rest.publish("a")
    stream = await streams.open()
    await stream.modify(await stream.take(), seconds)
    _assert_refused(
        await stream.ended(),
        f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 and 600 seconds.",
    )


@pytest.mark.parametrize("what", ["ack", "modify"])
async def test_a_malformed_ack_id_is_named(streams: Streams, what: str) -> None:
    await streams.subscribe()
    await streams.rest.publish("a")
    stream = await streams.open()
    [good] = await stream.take()
    bad = "böse"
    if what == "ack":
        await stream.send(ack_ids=[good.ack_id, bad])
    else:
        await stream.modify([good, bad], 30)
    ended = await stream.ended()
    assert ended.code == "INVALID_ARGUMENT"
    assert f"ack_id={bad}" in ended.message


async def test_an_ack_id_of_another_subscription_is_refused(streams: Streams) -> None:
    await streams.subscribe()
    await streams.subscribe("other")
    await streams.rest.publish("a")
    [foreign] = await (await streams.open("other")).take()
    stream = await streams.open()
    await stream.take()
    await stream.ack([foreign])
    ended = await stream.ended()
    assert ended.code == "INVALID_ARGUMENT"
    assert foreign.ack_id in ended.message
    assert await streams.unacked("other") == 1


async def test_a_request_that_is_no_protobuf_is_refused(streams: Streams) -> None:
    await streams.subscribe()
    stream = await streams.waiting()
    await stream.send(b"\xff\xff\xff")
    assert (await stream.ended()).code == "INVALID_ARGUMENT"


async def test_a_stream_that_is_refused_harms_no_other(streams: Streams) -> None:
    await streams.subscribe()
    good, bad = await streams.waiting(), await streams.waiting()
    await bad.send(ack_ids=["nonsense"])
    await bad.ended()
    await streams.rest.publish("a")
    assert await good.take_texts() == ["a"]


async def test_the_first_request_may_settle_already(streams: Streams) -> None:
    """A client that lost its stream says on the next what it could not say on the last."""
    await streams.subscribe()
    await streams.rest.publish("acked", "nacked")
    first = await streams.open()
    acked, nacked = await first.take(2)
    await first.close()
    again = await streams.open(
        ack_ids=[acked.ack_id], modify_deadline_ack_ids=[nacked.ack_id], modify_deadline_seconds=[0]
    )
    assert await again.take_texts() == ["nacked"]
    assert await streams.unacked() == 1
