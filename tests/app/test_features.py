"""The core works without features, and each feature can be registered without the others."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import pytest

from broker.api.row import routes_of
from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.app.features import FEATURES, Register
from tests.fixtures.broker import Rest, text
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink
from tests.fixtures.registered import METHODS, ROUTES

PROJECT = "projects/p"
UNKNOWN = "The requested method was not found"
# Features that start operations need the feature that runs them.
NEEDED = {"dead_letters": ["operations"], "import_export": ["operations"], "purge": ["operations"]}


@asynccontextmanager
async def running(database_url: str, *features: str) -> AsyncIterator[tuple[Broker, Rest]]:
    """A broker with these features alone, which runs within the block, and a client of it."""
    chosen: Mapping[str, Register] = {name: FEATURES[name] for name in features}
    broker = Broker(AppConfig(database_url=database_url, allow_reset=True), features=chosen)
    async with running_in_process(broker) as client:
        yield broker, Rest(client, PROJECT)


# --- no feature -------------------------------------------------------------------------------------------------


async def use_the_core(rest: Rest, push_sink: PushSink, topic: str) -> None:
    """Publish, pull, acknowledge, push and seek."""
    pulled, pushed = f"{topic}-pulled", f"{topic}-pushed"
    await rest.create_topic(topic)
    await rest.create_subscription(pulled, topic=topic, retainAckedMessages=True)
    endpoint = {"pushEndpoint": f"{push_sink.url}/{pushed}"}
    await rest.create_subscription(pushed, topic=topic, pushConfig=endpoint)
    await rest.publish("a", "b", topic=topic)
    assert sorted(map(text, await rest.drain(pulled))) == ["a", "b"]
    assert await rest.pull(pulled) == []
    await push_sink.wait_for(f"/{pushed}", 2)
    await rest.ok("POST", f"{rest.subscription(pulled)}:seek", {"time": "2000-01-01T00:00:00Z"})
    assert sorted(map(text, await rest.drain(pulled))) == ["a", "b"]


async def test_a_broker_without_features_publishes_pulls_acks_pushes_and_seeks(
    database_url: str, push_sink: PushSink
) -> None:
    async with running(database_url) as (broker, rest):
        assert not broker.features
        await use_the_core(rest, push_sink, "over-rest")
        with channel_to(str(rest.client.base_url)) as channel:
            await use_the_core(GrpcRest(channel, PROJECT), push_sink, "over-grpc")


async def test_calls_of_features_that_are_not_registered_are_unknown(database_url: str) -> None:
    async with running(database_url) as (broker, rest):
        core = {row.name for row in broker.rpcs}
        routes = [route for route in ROUTES if route.rpc.name not in core]
        assert routes
        for route in routes:
            response = await rest.call(route.method, route.path.replace("*", "name"))
            assert response.status_code == 404, route
            assert response.json()["error"]["message"].startswith(UNKNOWN), route
        with channel_to(str(rest.client.base_url)) as channel:
            assert [method.path for method in METHODS if method.rpc.name not in core and method.unary]
            for method in METHODS:
                if method.rpc.name not in core and method.unary:
                    refused = await over_grpc(channel, method.path.decode())
                    assert refused is grpc.StatusCode.UNIMPLEMENTED, method
        specified = (await rest.client.get("/openapi.json")).json()["paths"]
        served = {operation["x-rpc"] for path in specified.values() for operation in rpcs_of(path)}
        assert served == {route.rpc.name for route in routes_of(broker.rpcs)}


async def over_grpc(channel: grpc.Channel, path: str) -> grpc.StatusCode:
    """The status that a call with an empty request ends with."""
    future = channel.unary_unary(path).future(b"", timeout=60)
    error = await asyncio.to_thread(future.exception)
    return error.code()


def rpcs_of(path: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The operations of a path in the specification that are calls."""
    return [each for each in path.values() if isinstance(each, dict) and "x-rpc" in each]


# --- each feature alone -----------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of a path within the project, or from "/" on within the API.

    In path and body MESSAGE is the id of a message that was published.  `status`: a call for something that does
    not exist is refused by the service, which shows that it was reached as well.
    """

    method: str
    path: str
    body: Any = None
    status: int = 200


MESSAGE = "{message}"
TOPIC, SUB, OTHER = "topics/topic", "subscriptions/sub", f"{PROJECT}/topics/other"
INT = {"type": "AVRO", "definition": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'}
REDEFINED = {**INT, "name": f"{PROJECT}/schemas/schema"}
TRANSFORM = {"javascriptUdf": {"functionName": "f", "code": "function f(message, metadata) { return message; }"}}
SCHEDULE = {"topic": f"{PROJECT}/topics/topic", "message": {"data": "YQ=="}, "interval": "3600s"}
ACCOUNT = "serviceAccounts/account@p.iam.broker.internal"
POLICIES = [
    Call(method, f"{resource}:{verb}", body, 404 if "schemas" in resource and "Policy" in verb else 200)
    for resource in (TOPIC, SUB, "snapshots/snapshot", "schemas/none", ACCOUNT, "")
    for method, verb, body in (
        ("POST" if resource in (ACCOUNT, "") else "GET", "getIamPolicy", None),
        ("POST", "setIamPolicy", {"policy": {"bindings": []}}),
        ("POST", "testIamPermissions", {"permissions": ["pubsub.topics.get"]}),
    )
]

CALLS: Mapping[str, Sequence[Call]] = {
    "schemas": [
        Call("POST", "schemas?schemaId=schema", INT),
        Call("GET", "schemas/schema"),
        Call("GET", "schemas"),
        Call("POST", "schemas/schema:commit", {"schema": REDEFINED}),
        Call("GET", "schemas/schema:listRevisions"),
        Call("POST", "schemas/schema:rollback", {"revisionId": "00000000"}, 404),
        Call("DELETE", "schemas/schema@00000000:deleteRevision", None, 404),
        Call("POST", "schemas:validate", {"schema": INT}),
        Call("POST", "schemas:validateMessage", {"schema": INT, "message": "eyJhIjogMX0=", "encoding": "JSON"}),
        Call("GET", f"{TOPIC}/messages/{MESSAGE}:decode", None, 400),
        Call("DELETE", "schemas/schema"),
    ],
    "transforms": [
        Call("POST", ":validateMessageTransform", {"messageTransform": TRANSFORM}),
        Call(
            "POST",
            ":testMessageTransforms",
            {"messageTransforms": {"messageTransforms": [TRANSFORM]}, "message": {"data": "YQ=="}},
        ),
    ],
    "delayed": [
        Call("GET", f"{TOPIC}/scheduled"),
        Call("GET", f"{TOPIC}/scheduled/{MESSAGE}", None, 404),
        Call("PATCH", f"{TOPIC}/scheduled/{MESSAGE}", {"deliverTime": "2100-01-01T00:00:00Z"}, 404),
        Call("DELETE", f"{TOPIC}/scheduled/{MESSAGE}", None, 404),
    ],
    "schedules": [
        Call("PUT", "schedules/hourly", SCHEDULE),
        Call("GET", "schedules/hourly"),
        Call("GET", "schedules"),
        Call("POST", "schedules/hourly:pause"),
        Call("POST", "schedules/hourly:resume"),
        Call("POST", "schedules/hourly:run"),
        Call("GET", "schedules/hourly:next"),
        Call("GET", "schedules/hourly/ticks"),
        Call("DELETE", "schedules/hourly"),
    ],
    "retraction": [
        Call("POST", f"{TOPIC}:replace", {"messageId": MESSAGE, "message": {"data": "Yg=="}}),
        Call("POST", f"{TOPIC}:retract", {"messageIds": [MESSAGE]}),
    ],
    "dead_letters": [
        Call("GET", f"{SUB}/deadLetters"),
        Call("GET", "deadLetters"),
        Call("POST", f"{SUB}:discard", {"reasons": ["nack"]}),
        Call("POST", f"{SUB}:editDeadLetter", {"messageId": MESSAGE, "data": "Yg=="}, 404),
        Call("POST", f"{SUB}:redrive", {}),
        Call("POST", "subscriptions/pushed:recover", {"startTime": "2020-01-01T00:00:00Z"}),
        Call("POST", "subscriptions/pushed:replayMissing", {"startTime": "2020-01-01T00:00:00Z"}),
    ],
    "import_export": [
        Call("POST", f"{TOPIC}:import?importId=one&part=1", {"data": "YQ=="}),
        Call("POST", f"{TOPIC}:export"),
        Call("POST", f"{TOPIC}:copy", {"targetTopic": OTHER}),
    ],
    "purge": [
        Call("POST", f"{SUB}:purge", {"filter": "attributes:a"}),
        Call("POST", f"{SUB}:purge"),
        Call("POST", f"{TOPIC}:purge"),
    ],
    "held_messages": [
        Call("POST", f"{SUB}:release", {"messageIds": [MESSAGE]}),
        Call("POST", f"{SUB}:deadLetter", {"messageIds": [MESSAGE]}, 400),
    ],
    "resend": [Call("POST", f"{SUB}:resend", {"messageIds": [MESSAGE]})],
    "filters": [
        Call("POST", f"{SUB}:setFilter", {"filter": "attributes:a"}),
        Call("POST", f"{TOPIC}:testFilter", {"filter": "attributes:a"}),
        Call("POST", f"{SUB}:testFilter", {}),
    ],
    "operations": [
        Call("GET", "operations"),
        Call("GET", "operations/none", None, 404),
        Call("POST", "operations/none:wait", None, 404),
        Call("POST", "operations/none:cancel", None, 404),
        Call("DELETE", "operations/none", None, 404),
    ],
    "push_status": [
        Call("GET", "subscriptions/pushed:pushStatus"),
        Call("GET", "subscriptions/pushed:pushFailures"),
        Call("GET", "subscriptions/pushed:pushAttempts"),
        Call("POST", "subscriptions/pushed:testPush"),
        Call("POST", "subscriptions/pushed:pausePush"),
        Call("POST", "subscriptions/pushed:resumePush"),
    ],
    "inspect": [
        Call("GET", f"{TOPIC}:publishers"),
        Call("GET", f"{SUB}/consumers"),
        Call("GET", f"{TOPIC}/messages/{MESSAGE}"),
        Call("GET", f"{TOPIC}/messages/{MESSAGE}:data"),
        Call("GET", f"messages/{MESSAGE}"),
        Call("GET", f"{SUB}/messages/{MESSAGE}"),
        Call("GET", f"{SUB}/messages"),
        Call("GET", f"{TOPIC}/messages"),
        Call("GET", f"{TOPIC}:histogram"),
        Call("GET", "topics/none:tail", None, 404),
        *(Call("GET", f"/broker/{name}") for name in ("processes", "database", "findings", "settings")),
    ],
    "lag_board": [Call("GET", "lag")],
    "journal": [Call("GET", "subscriptions/none:tail", None, 404)],
    "events": [
        Call("PATCH", "settings", {"eventTopic": OTHER}),
        Call("GET", "settings"),
        Call("POST", "marks", {"text": "Release 7"}),
        Call("GET", "events"),
    ],
    "metrics": [],
    "history": [
        Call("GET", "timeSeries?metric=pubsub_topic_published_messages_total"),
        Call("GET", f"timeSeries?metric=pubsub_topic_published_messages_total&resource={PROJECT}/{TOPIC}"),
    ],
    "topic_stats": [],
    "quotas": [Call("PATCH", "quotas", {"limits": {}}), Call("GET", "quotas")],
    "project_settings": [
        call
        for path, body in {
            "maskingRules/cards": {"attributes": ["card"]},
            "savedViews/late": {"page": "subscriptions"},
            "messageTemplates/sale": {"topic": f"{PROJECT}/{TOPIC}", "data": "YQ=="},
            "linkTemplates/traces": {"title": "Trace", "url": "https://t.example/{traceId}"},
        }.items()
        for call in (
            Call("PUT", path, body),
            Call("GET", path),
            Call("GET", path.partition("/")[0]),
            Call("PATCH", path, {"title": "Another title"}),
            Call("DELETE", path),
        )
    ],
    "projects": [Call("GET", "/projects")],
    "search": [Call("GET", ":search?q=topic")],
    "reset": [Call("POST", ":reset")],
    "audit": [Call("GET", "auditLogs")],
    "share_links": [
        Call("POST", "subscriptions/pushed:createShareLink", {}, 400),
        Call("GET", "subscriptions/pushed/shareLinks"),
        Call("DELETE", "subscriptions/pushed/shareLinks/none", None, 404),
    ],
    "iam": [
        Call("POST", "serviceAccounts", {"accountId": "account"}),
        Call("GET", "serviceAccounts"),
        Call("GET", ACCOUNT),
        Call("POST", f"{ACCOUNT}:disable"),
        Call("POST", f"{ACCOUNT}:enable"),
        Call("POST", f"{ACCOUNT}/keys"),
        Call("GET", f"{ACCOUNT}/keys"),
        Call("GET", f"{ACCOUNT}/keys/none", None, 404),
        Call("DELETE", f"{ACCOUNT}/keys/none", None, 404),
        *POLICIES,
        Call(
            "POST",
            ":explainAccess",
            {"principal": "user:a@b.c", "permission": "pubsub.topics.get", "resource": f"{PROJECT}/{TOPIC}"},
        ),
        Call("GET", "/whoami"),
        Call("POST", "/signInLinks", {}, 400),
        Call("DELETE", ACCOUNT),
        Call("POST", "roles", {"roleId": "role", "role": {"title": "A role"}}),
        Call("GET", "roles"),
        Call("GET", "roles/role"),
        Call("PATCH", "roles/role", {"title": "Another title"}),
        Call("DELETE", "roles/role"),
        Call("POST", "roles/role:undelete"),
        Call("GET", "/roles"),
        Call("GET", "/roles/owner"),
        Call("POST", "/permissions:queryTestablePermissions"),
        Call("POST", "apiKeys", {"roles": ["roles/viewer"]}),
        Call("GET", "apiKeys"),
        Call("GET", "apiKeys/none", None, 404),
        Call("DELETE", "apiKeys/none", None, 404),
    ],
}


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", FEATURES)
async def test_a_feature_alone_answers_each_of_its_calls(database_url: str, push_sink: PushSink, name: str) -> None:
    async with running(database_url, *NEEDED.get(name, ()), name) as (broker, rest):
        await rest.create_topic()
        await rest.create_topic("other")
        await rest.create_subscription()
        endpoint = {"pushEndpoint": f"{push_sink.url}/status/204"}
        await rest.create_subscription("pushed", topic="other", pushConfig=endpoint)
        await rest.ok("PUT", f"{PROJECT}/snapshots/snapshot", {"subscription": rest.subscription()})
        [message_id] = await rest.publish("a")
        called = set()
        for call in CALLS.get(name, ()):
            path = path_of(call).replace(MESSAGE, message_id)
            body = json.loads(json.dumps(call.body).replace(MESSAGE, message_id))
            response = await rest.call(call.method, path, body)
            assert response.status_code == call.status, (call, response.text)
            assert UNKNOWN not in response.text, (call, response.text)
            called.add((call.method, shape_of(path)))
        assert called == {(route.method, route.path) for route in routes_of(broker.features[name].rpcs)}


def path_of(call: Call) -> str:
    if call.path.startswith("/"):
        return call.path[1:]
    return f"{PROJECT}{'' if call.path.startswith(':') else '/'}{call.path}"


def shape_of(path: str) -> str:
    """A path as routes have it, with `*` for each id."""
    path, colon, verb = path.partition("?")[0].partition(":")
    if path.startswith("broker/"):
        return path  # it names no resource
    return "/".join("*" if i % 2 else part for i, part in enumerate(path.split("/"))) + colon + verb


# The property of a topic that a feature adds.
PROPERTIES: Mapping[str, Mapping[str, Any]] = {
    "transforms": {"messageTransforms": [TRANSFORM]},
    "deduplication": {"extensions": {"deduplication": {"window": "600s"}}},
    "expiry": {"extensions": {"expiry": True}},
    "priorities": {"extensions": {"priorities": 2}},
    "delayed": {"extensions": {"delay": True}},
}


@pytest.mark.parametrize("name", PROPERTIES)
async def test_topics_have_the_property_of_a_feature_if_it_is_registered(database_url: str, name: str) -> None:
    async with running(database_url) as (_, rest):
        response = await rest.call("PUT", rest.topic(), PROPERTIES[name])
        assert response.status_code == 400
        assert "This broker does not support" in response.text
        await rest.create_topic()
    async with running(database_url, name) as (_, rest):
        await rest.create_topic("with", **PROPERTIES[name])
        await rest.create_subscription(topic="with")
        await rest.publish("a", topic="with")
        assert list(map(text, await rest.drain())) == ["a"]
    async with running(database_url) as (_, rest):
        response = await rest.call("POST", f"{rest.topic('with')}:publish", {"messages": [{"data": "YQ=="}]})
        assert response.status_code == 400
        assert "which this broker does not support" in response.text


async def test_metrics_are_served_if_their_feature_is_registered(database_url: str) -> None:
    async with running(database_url, "metrics") as (_, rest):
        assert "pubsub_topic_publish_requests_total" in (await rest.client.get("/metrics")).text
    async with running(database_url) as (_, rest):
        assert (await rest.client.get("/metrics")).status_code == 404


def test_what_features_add_is_part_of_the_broker_and_nothing_has_the_name_of_another() -> None:
    broker = Broker(AppConfig(database_url="postgresql://nobody@nowhere/none"))
    for feature in broker.features.values():
        parts = (feature.rpcs, feature.workers, feature.clean_ups, feature.publish_rules, feature.topic_views)
        assert any(parts)
        assert feature.workers.items() <= broker.workers.items()
        assert {row.name for row in feature.rpcs} <= {row.name for row in broker.rpcs}
