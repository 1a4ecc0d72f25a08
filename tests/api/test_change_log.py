"""Each change of a resource leaves one line in the log, whichever API it came through, also without --auth."""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2
from google.pubsub_v1 import types

from broker.observability.log import JsonFormatter
from tests.fixtures.access import guarded
from tests.fixtures.in_process import own_broker

P = "projects/p"
TOPIC, SUBSCRIPTION, SNAPSHOT = f"{P}/topics/orders", f"{P}/subscriptions/billing", f"{P}/snapshots/before"
SCHEMA, SCHEDULE = f"{P}/schemas/order", f"{P}/schedules/nightly"
AVRO = {"type": "AVRO", "definition": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'}


def _lines(caplog: pytest.LogCaptureFixture) -> list[Mapping[str, Any]]:
    """What JSON lines have of the changes since the last time."""
    found = [json.loads(JsonFormatter().format(each)) for each in caplog.records if each.name == "broker.changes"]
    caplog.clear()
    return found


CALLS: list[tuple[str, str, Any, str, str, list[str]]] = [
    ("PUT", TOPIC, {}, "CreateTopic", TOPIC, []),
    (
        "PATCH",
        TOPIC,
        {
            "topic": {"labels": {"a": "b"}, "messageRetentionDuration": "600s"},
            "updateMask": "labels,messageRetentionDuration",
        },
        "UpdateTopic",
        TOPIC,
        ["labels", "message_retention_duration"],
    ),
    ("PUT", SUBSCRIPTION, {"topic": TOPIC}, "CreateSubscription", SUBSCRIPTION, []),
    (
        "PATCH",
        f"{SUBSCRIPTION}?updateMask=ackDeadlineSeconds",
        {"subscription": {"ackDeadlineSeconds": 30}},
        "UpdateSubscription",
        SUBSCRIPTION,
        ["ack_deadline_seconds"],
    ),
    ("POST", f"{SUBSCRIPTION}:modifyPushConfig", {"pushConfig": {}}, "ModifyPushConfig", SUBSCRIPTION, []),
    ("PUT", SNAPSHOT, {"subscription": SUBSCRIPTION}, "CreateSnapshot", SNAPSHOT, []),
    (
        "PATCH",
        SNAPSHOT,
        {"snapshot": {"labels": {"a": "b"}}, "updateMask": "labels"},
        "UpdateSnapshot",
        SNAPSHOT,
        ["labels"],
    ),
    ("POST", f"{SUBSCRIPTION}:seek", {"snapshot": SNAPSHOT}, "Seek", SUBSCRIPTION, []),
    ("POST", f"{SUBSCRIPTION}:purge", {}, "PurgeSubscription", SUBSCRIPTION, []),
    ("POST", f"{SUBSCRIPTION}:pause", {}, "PauseSubscription", SUBSCRIPTION, []),
    ("POST", f"{SUBSCRIPTION}:setFilter", {"filter": "attributes:a"}, "SetFilter", SUBSCRIPTION, []),
    ("POST", f"{TOPIC}:freeze", {}, "FreezeTopic", TOPIC, []),
    ("POST", f"{TOPIC}:unfreeze", {}, "UnfreezeTopic", TOPIC, []),
    ("POST", f"{P}/schemas?schemaId=order", AVRO, "CreateSchema", SCHEMA, []),
    (
        "PUT",
        SCHEDULE,
        {"topic": TOPIC, "interval": "60s", "message": {"data": "YQ=="}},
        "PutSchedule",
        SCHEDULE,
        [],
    ),
    ("POST", f"{TOPIC}:setIamPolicy", {"policy": {}}, "SetIamPolicy", TOPIC, []),
    ("PATCH", f"{P}/settings", {"eventTopic": TOPIC}, "UpdateSettings", P, ["event_topic"]),
    ("POST", f"{P}/marks", {"text": "Release 7"}, "CreateMark", f"{P}/events/1", []),
    ("PATCH", f"{P}/quotas", {"limits": {}}, "UpdateQuotas", P, ["limits"]),
    ("DELETE", SCHEDULE, None, "DeleteSchedule", SCHEDULE, []),
    ("DELETE", SCHEMA, None, "DeleteSchema", SCHEMA, []),
    ("DELETE", SNAPSHOT, None, "DeleteSnapshot", SNAPSHOT, []),
    ("POST", f"{SUBSCRIPTION}:detach", None, "DetachSubscription", SUBSCRIPTION, []),
    ("DELETE", SUBSCRIPTION, None, "DeleteSubscription", SUBSCRIPTION, []),
    ("POST", f"{TOPIC}:purge", {}, "PurgeTopic", TOPIC, []),
    ("DELETE", TOPIC, None, "DeleteTopic", TOPIC, []),
]


async def test_a_change_over_rest_is_said_with_what_who_from_where_and_which_fields(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.changes")
    async with own_broker(database_url) as (_, rest):
        for method, path, body, rpc, resource, fields in CALLS:
            await rest.ok(method, path, body)
            [line] = _lines(caplog)
            named = f": {', '.join(fields)}" if fields else ""
            assert line["message"] == f"anonymous at 127.0.0.1 called {rpc} on {resource}{named}"
            said = [
                line[name] for name in ("event", "severity", "method", "resource", "principal", "remote_address")
            ]
            assert said == ["resource_changed", "INFO", rpc, resource, "anonymous", "127.0.0.1"]
            assert (line["project"], line.get("changed_fields", [])) == ("p", fields)
            assert line["request_id"]
            assert line.get("topic") == (resource if "/topics/" in resource else None)
            assert line.get("subscription") == (resource if "/subscriptions/" in resource else None)


async def test_what_only_reads_or_uses_or_fails_is_not_said(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.changes")
    async with own_broker(database_url) as (_, rest):
        await rest.create_topic()
        await rest.create_subscription()
        _lines(caplog)
        await rest.publish("a")
        await rest.acknowledge(await rest.pull())
        await rest.ok("GET", rest.topic())
        await rest.error("PUT", rest.topic(), {})
        await rest.error("DELETE", rest.topic("none"))
        await rest.ok("DELETE", rest.topic(), params={"validateOnly": "true"})
        await rest.ok("POST", f"{rest.subscription()}:purge", {"validateOnly": True})
        await rest.ok("POST", f"{rest.subscription()}:setFilter", {"filter": "attributes:a", "validateOnly": True})
        assert _lines(caplog) == []


async def test_a_deletion_is_said_although_its_body_which_is_ignored_has_validate_only(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.changes")
    async with own_broker(database_url) as (_, rest):
        await rest.create_topic()
        escaped = rb'{"": "_validateOnly", "validate\u004fnly": true}'
        await rest.ok("DELETE", rest.topic(), content=escaped)
        assert [line["method"] for line in _lines(caplog)] == ["CreateTopic", "DeleteTopic"]


async def test_a_change_over_grpc_is_said_alike(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker.changes")
    async with (
        own_broker(database_url) as (_, rest),
        grpc.aio.insecure_channel(rest.client.base_url.netloc.decode()) as channel,
    ):

        async def call(method: str, request: Any) -> Mapping[str, Any]:
            made: Any = channel.unary_unary(f"/google.pubsub.v1.{method}")
            await made(type(request).serialize(request))
            [line] = _lines(caplog)
            return line

        assert (await call("Publisher/CreateTopic", types.Topic(name=TOPIC)))["topic"] == TOPIC
        labels = types.Topic(
            name=TOPIC, labels={"a": "b"}, message_retention_duration=duration_pb2.Duration(seconds=600)
        )
        update = types.UpdateTopicRequest(topic=labels, update_mask="labels,messageRetentionDuration")
        line = await call("Publisher/UpdateTopic", update)
        assert line["message"] == (
            f"anonymous at 127.0.0.1 called UpdateTopic on {TOPIC}: labels, message_retention_duration"
        )
        assert line["request_id"]
        schema = types.Schema(type_=types.Schema.Type.AVRO, definition=AVRO["definition"])
        create = types.CreateSchemaRequest(parent=P, schema=schema, schema_id="order")
        assert (await call("SchemaService/CreateSchema", create))["schema"] == SCHEMA
        subscription = types.Subscription(name=SUBSCRIPTION, topic=TOPIC)
        assert (await call("Subscriber/CreateSubscription", subscription))["subscription"] == SUBSCRIPTION
        delete = types.DeleteSubscriptionRequest(subscription=SUBSCRIPTION)
        assert (await call("Subscriber/DeleteSubscription", delete))["subscription"] == SUBSCRIPTION


async def test_with_authentication_the_principal_is_said_and_no_secret(
    clone: Callable[[], AbstractContextManager[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.changes")
    with clone() as url:
        async with guarded(url) as broker:
            admin = f"serviceAccount:{broker.admin['client_email']}"
            made = await broker.ok("POST", "projects/guarded/apiKeys", {"roles": ["roles/viewer"]})
            [line] = _lines(caplog)
            assert (line["resource"], line["principal"]) == (made["name"], admin)
            key = await broker.key(await broker.account())
            assert {line["method"] for line in _lines(caplog)} >= {
                "CreateServiceAccount",
                "CreateServiceAccountKey",
            }
            assert made["keyString"] not in caplog.text
            assert key["private_key"] not in caplog.text
