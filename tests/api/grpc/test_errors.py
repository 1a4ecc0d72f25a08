"""Refusals over gRPC: the codes and texts of REST, and the details where clients read them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from broker.api.generated import messages
from tests.fixtures.broker import Rest, message
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.fixtures.registered import METHODS


@pytest.fixture
def channel(broker_url: str) -> Iterator[grpc.Channel]:
    with channel_to(broker_url) as opened:
        yield opened


@pytest.fixture
async def apis(rest: Rest, channel: grpc.Channel) -> tuple[Rest, Rest]:
    await rest.create_topic()
    await rest.create_subscription()
    return rest, GrpcRest(channel, rest.project)


REFUSALS: dict[str, Callable[[Rest], tuple[Any, ...]]] = {
    "exists": lambda r: ("PUT", r.topic(), {}),
    "a bad name": lambda r: ("PUT", r.topic("a"), {}),
    "a topic that is missing": lambda r: ("GET", r.topic("missing")),
    "a publish to nothing": lambda r: ("POST", f"{r.topic('missing')}:publish", {"messages": [message("x")]}),
    "a publish of nothing": lambda r: ("POST", f"{r.topic()}:publish", {}),
    "an empty message": lambda r: ("POST", f"{r.topic()}:publish", {"messages": [{}]}),
    "mixed keys": lambda r: (
        "POST",
        f"{r.topic()}:publish",
        {"messages": [message("a", orderingKey="a"), message("b", orderingKey="b")]},
    ),
    "U+0000": lambda r: ("POST", f"{r.topic()}:publish", {"messages": [message("a", {"k": "\0"})]}),
    "no ack ids": lambda r: ("POST", f"{r.subscription()}:acknowledge", {}),
    "a false ack id": lambda r: ("POST", f"{r.subscription()}:acknowledge", {"ackIds": ["böse\n"]}),
    "a deadline of 601": lambda r: (
        "POST",
        f"{r.subscription()}:modifyAckDeadline",
        {"ackIds": ["x"], "ackDeadlineSeconds": 601},
    ),
    "a pull of nothing": lambda r: ("POST", f"{r.subscription()}:pull", {"maxMessages": 0}),
    "a pull of what is missing": lambda r: ("POST", f"{r.subscription('none')}:pull", {"maxMessages": 1}),
    "no mask": lambda r: ("PATCH", r.topic(), {"topic": {}}),
    "an immutable field": lambda r: ("PATCH", r.subscription(), {"subscription": {}, "updateMask": "filter"}),
    "a field that is unknown": lambda r: ("PATCH", r.topic(), {"topic": {}, "updateMask": "colour"}),
    "a topic's field that is not served": lambda r: ("PUT", r.topic("other"), {"tags": {"a": "b"}}),
    "a subscription's": lambda r: (
        "PUT",
        r.subscription("other"),
        {"topic": r.topic(), "bigqueryConfig": {"table": "t"}, "bigtableConfig": {"table": "t"}},
    ),
    "a filter": lambda r: ("PUT", r.subscription("other"), {"topic": r.topic(), "filter": "attributes.a = "}),
    "a short retention": lambda r: (
        "PUT",
        r.subscription("other"),
        {"topic": r.topic(), "messageRetentionDuration": "1s"},
    ),
    "a push config without endpoint": lambda r: (
        "PUT",
        r.subscription("other"),
        {"topic": r.topic(), "pushConfig": {"noWrapper": {}}},
    ),
    "a page token": lambda r: ("GET", f"{r.project}/topics", None, {"params": {"pageToken": "nonsense!"}}),
    "a page size": lambda r: ("GET", f"{r.project}/topics", None, {"params": {"pageSize": -1}}),
    "a seek to nowhere": lambda r: ("POST", f"{r.subscription()}:seek", {}),
    "a snapshot of nothing": lambda r: (
        "PUT",
        f"{r.project}/snapshots/snap",
        {"subscription": r.subscription("none")},
    ),
    "a snapshot's field": lambda r: (
        "PUT",
        f"{r.project}/snapshots/snap",
        {"subscription": r.subscription(), "tags": {"a": "b"}},
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refusal_is_the_same_over_both_apis(apis: tuple[Rest, Rest], refusal: str) -> None:
    errors = []
    for api in apis:
        method, path, *rest = REFUSALS[refusal](api)
        body, options = rest[0] if rest else None, rest[1] if len(rest) > 1 else {}
        response = await api.call(method, path, body, **options)
        errors.append((response.status_code, response.json()["error"]))
    assert errors[0] == errors[1]
    assert errors[0][0] >= 400


async def test_stale_ack_ids_are_named_in_the_details(apis: tuple[Rest, Rest]) -> None:
    rest, _ = apis
    await rest.create_subscription("once", enableExactlyOnceDelivery=True)
    await rest.publish(*(f"{n}" for n in range(1000)))
    stale = await rest.pull("once", 1000)
    await rest.modify_ack_deadline(stale, 0, "once")
    body = {"ackIds": [m["ackId"] for m in stale]}
    answers = [await api.call("POST", f"{rest.subscription('once')}:acknowledge", body) for api in apis]
    assert answers[0].json() == answers[1].json()
    [detail] = answers[1].json()["error"]["details"]
    assert detail["metadata"] == dict.fromkeys(body["ackIds"], "PERMANENT_FAILURE_INVALID_ACK_ID")


@pytest.mark.parametrize(
    ("rpc", "field", "name"),
    [
        ("Publisher/GetTopic", "topic", "topics/t"),
        ("Publisher/DeleteTopic", "topic", "projects/p/subscriptions/s"),
        ("Publisher/Publish", "topic", ""),
        ("Subscriber/Pull", "subscription", "projects/p/subscriptions/\0"),
        ("Subscriber/GetSnapshot", "snapshot", "projects//snapshots/s"),
        ("Subscriber/ListSubscriptions", "project", "p"),
        ("Publisher/ListTopics", "project", "projects/\0"),
    ],
)
def test_a_name_that_no_resource_can_have_is_refused(
    channel: grpc.Channel, rpc: str, field: str, name: str
) -> None:
    """REST has no path for most of these."""
    request = getattr(messages, f"{rpc.partition('/')[2]}Request")(**{field: name})
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(f"/google.pubsub.v1.{rpc}")(request.SerializeToString(), timeout=20)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details().startswith("Invalid [")


def test_what_google_has_not_is_unimplemented(channel: grpc.Channel) -> None:
    for path in ("/google.pubsub.v1.Publisher/DeleteEverything", "/google.pubsub.v9.Publisher/Publish"):
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(path)(b"", timeout=20)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("method", [m for m in METHODS if m.unary and "pubsub" in m.service], ids=lambda m: m.name)
def test_a_request_that_is_no_protobuf_is_refused(channel: grpc.Channel, method: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(method.path.decode())(b"\xff\xff\xff", timeout=20)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_resources_without_a_name_are_given_one(apis: tuple[Rest, Rest], channel: grpc.Channel) -> None:
    """Google's spec, of CreateSubscription and CreateSnapshot; REST has the name in the path."""
    rest, _ = apis

    def call(rpc: str, request: Any, answer: Any) -> Any:
        unary = channel.unary_unary(f"/google.pubsub.v1.Subscriber/{rpc}")
        return answer.FromString(unary(request.SerializeToString(), timeout=20))

    wanted = messages.Subscription(topic=rest.topic())
    subscription = await asyncio.to_thread(call, "CreateSubscription", wanted, messages.Subscription)
    assert subscription.name.startswith(f"{rest.project}/subscriptions/")
    assert (await rest.ok("GET", subscription.name))["topic"] == rest.topic()
    asked = messages.CreateSnapshotRequest(subscription=rest.subscription())
    snapshot = await asyncio.to_thread(call, "CreateSnapshot", asked, messages.Snapshot)
    assert snapshot.name.startswith(f"{rest.project}/snapshots/")


@pytest.mark.parametrize(("seconds", "nanos"), [(10**12, 0), (-(10**12), 0), (1, 10**9), (1, -1)])
async def test_a_duration_that_is_none_is_refused(
    apis: tuple[Rest, Rest], channel: grpc.Channel, seconds: int, nanos: int
) -> None:
    wanted = messages.Topic(name=apis[0].topic("other"))
    wanted.message_retention_duration.seconds = seconds
    wanted.message_retention_duration.nanos = nanos
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary("/google.pubsub.v1.Publisher/CreateTopic")(wanted.SerializeToString(), timeout=20)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("seconds", "nanos"), [(10**12, 0), (0, -1), (0, 10**9)])
async def test_a_time_that_is_none_is_refused(
    apis: tuple[Rest, Rest], channel: grpc.Channel, seconds: int, nanos: int
) -> None:
    asked = messages.SeekRequest(subscription=apis[0].subscription())
    asked.time.seconds, asked.time.nanos = seconds, nanos
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary("/google.pubsub.v1.Subscriber/Seek")(asked.SerializeToString(), timeout=20)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
