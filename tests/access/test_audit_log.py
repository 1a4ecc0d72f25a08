"""The audit log: who did what, on what, from where, with which result; and never what was secret in it (E5)."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from broker.access.audit.log_filter import parse_log_filter
from broker.model.errors import InvalidArgument
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json
from tests.fixtures.registered import RPCS

pytestmark = [pytest.mark.slow, pytest.mark.ci]

TOPIC = "projects/guarded/topics/orders"
METHOD = "google.pubsub.v1.Publisher."


async def _entries(broker: Guarded, text: str = "", **query: str) -> list[Json]:
    assert broker.broker.guard.audit_trail is not None
    broker.broker.guard.audit_trail._take_noted(in_window=True)
    await broker.broker.guard.audit_trail.flush()
    answer = await broker.ok("GET", "projects/guarded/auditLogs", params={"filter": text, **query})
    entries: list[Json] = answer.get("entries", [])
    return entries


def _short(entry: Json) -> tuple[str, str, str]:
    payload = entry["protoPayload"]
    return (
        payload["methodName"].rpartition(".")[2],
        payload["resourceName"],
        payload.get("status", {}).get("message", "OK"),
    )


@asynccontextmanager
async def _auditing(clone: Callable[[], Any], **settings: Any) -> AsyncIterator[Guarded]:
    with clone() as database_url:
        async with guarded(database_url, **settings) as running:
            yield running


async def test_a_change_is_entered_before_it_is_answered_with_who_from_where_and_by_which_credential(
    broker: Guarded,
) -> None:
    await broker.ok("PUT", TOPIC)
    answer = await broker.ok("GET", "projects/guarded/auditLogs")  # nothing was flushed by hand
    [entry] = answer["entries"]
    payload = entry["protoPayload"]
    assert payload["methodName"] == f"{METHOD}CreateTopic"
    assert payload["serviceName"] == "pubsub.googleapis.com"
    assert payload["resourceName"] == TOPIC
    assert payload["authenticationInfo"] == {
        "principalEmail": broker.admin["client_email"],
        "principalSubject": f"serviceAccount:{broker.admin['client_email']}",
        "credentialId": f"key:{broker.admin['private_key_id']}",
    }
    assert payload["requestMetadata"] == {"callerIp": "127.0.0.1"}
    assert "status" not in payload


async def test_both_apis_enter_changes_and_denials_alike_and_uses_not_at_all(broker: Guarded) -> None:
    nobody = await broker.key(await broker.account(role=""))
    metadata = tuple((name.lower(), value) for name, value in broker.bearer().items())
    refused = tuple((name.lower(), value) for name, value in broker.bearer(nobody).items())
    topic = types.Topic.serialize(types.Topic(name=TOPIC))
    get = types.GetTopicRequest.serialize(types.GetTopicRequest(topic=TOPIC))
    async with grpc.aio.insecure_channel(broker.client.base_url.netloc.decode()) as channel:
        create: Any = channel.unary_unary("/google.pubsub.v1.Publisher/CreateTopic")
        check: Any = channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")
        await create(topic, metadata=metadata)
        await check(get, metadata=metadata)
        for shown in (refused, ()):
            with pytest.raises(grpc.aio.AioRpcError):
                await check(get, metadata=shown)
    await broker.ok("GET", TOPIC)
    for headers in (broker.bearer(nobody), {}):
        assert (await broker.call("GET", TOPIC, headers=headers)).status_code in (401, 403)
    await broker.ok("DELETE", TOPIC)
    found = [entry for entry in await _entries(broker) if entry["protoPayload"]["resourceName"] == TOPIC]
    counts: Counter[tuple[str, str, str]] = Counter()
    for entry in found:
        counts[_short(entry)] += entry.get("times", 1)
    assert counts == {
        ("CreateTopic", TOPIC, "OK"): 1,
        ("DeleteTopic", TOPIC, "OK"): 1,
        ("GetTopic", TOPIC, "PERMISSION_DENIED"): 2,  # one over REST, one over gRPC
        ("GetTopic", TOPIC, "UNAUTHENTICATED"): 2,
    }
    denied = next(entry for entry in found if _short(entry)[2] == "PERMISSION_DENIED")
    assert denied["protoPayload"]["authorizationInfo"] == [
        {"resource": TOPIC, "permission": "pubsub.topics.get", "granted": False}
    ]
    assert denied["protoPayload"]["authenticationInfo"]["principalEmail"] == nobody["client_email"]


async def test_a_denial_that_the_caller_sees_as_not_found_is_entered_as_a_denial(broker: Guarded) -> None:
    worker = "projects/guarded/subscriptions/worker"
    await broker.ok("PUT", TOPIC)
    await broker.ok("PUT", worker, {"topic": TOPIC})
    name = (await broker.ok("POST", f"{worker}:purge", {"filter": "attributes:env"}))["name"]
    nobody = broker.bearer(await broker.key(await broker.account(role="")))
    assert (await broker.call("GET", name, headers=nobody)).status_code == 404
    entries = await _entries(broker)
    assert ("GetOperation", name, "PERMISSION_DENIED") in map(_short, entries)


async def test_a_change_that_failed_is_entered_with_why(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)
    assert (await broker.call("PUT", TOPIC)).status_code == 409
    assert ("CreateTopic", TOPIC, "ALREADY_EXISTS") in map(_short, await _entries(broker))


async def test_uses_of_data_are_entered_by_choice_and_counted_by_the_second(clone: Callable[[], Any]) -> None:
    async with _auditing(clone, audit="all") as broker:
        await broker.ok("PUT", TOPIC)
        for _ in range(3):
            await broker.ok("POST", f"{TOPIC}:publish", {"messages": [{"data": "aGk="}] * 5})
        found = [entry for entry in await _entries(broker) if _short(entry)[0] == "Publish"]
    assert sum(entry.get("times", 1) for entry in found) == 3


async def test_secrets_are_never_in_it(clone: Callable[[], Any], tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with _auditing(clone, audit="all", audit_file=str(file)) as broker:
        account = await broker.account()
        key = await broker.key(account)
        made = await broker.ok("POST", "projects/guarded/apiKeys", {"roles": ["roles/viewer"]})
        await broker.ok("PUT", TOPIC)
        secret = "whsec_" + "c2VjcmV0IHRoYXQgaXMgbG9uZyBlbm91Z2g="
        await broker.call(
            "PUT",
            "projects/guarded/subscriptions/hook",
            {
                "topic": TOPIC,
                "pushConfig": {"pushEndpoint": "http://name:password@127.0.0.1:9/?token=t0ken"},
                "extensions": {"webhookSecrets": [secret]},
            },
        )
        await broker.call("GET", f"projects/guarded/topics?key={made['keyString']}", headers={})
        await broker.call("GET", "projects/guarded/topics?key=brk-wrong-secret", headers={})
        await broker.call("GET", "projects/guarded/topics", headers={"Authorization": "Bearer wrong-secret"})
        token = broker.token(key)
        await broker.call("GET", "projects/guarded/topics", headers={"Authorization": f"Bearer {token}"})
        text = json.dumps(await _entries(broker)) + file.read_text()
    for hidden in (secret, "password", "t0ken", made["keyString"], "wrong-secret", token, "PRIVATE KEY"):
        assert hidden not in text
    assert "ListTopics" in text


async def test_the_file_has_a_line_for_each_entry_and_may_be_renamed(
    clone: Callable[[], Any], tmp_path: Path
) -> None:
    file, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    async with _auditing(clone, audit_file=str(file)) as broker:
        await broker.ok("PUT", TOPIC)
        file.rename(old)
        await broker.ok("DELETE", TOPIC)
        assert [_short(json.loads(line)) for line in old.read_text().splitlines()] == [("CreateTopic", TOPIC, "OK")]
        assert [_short(json.loads(line)) for line in file.read_text().splitlines()] == [
            ("DeleteTopic", TOPIC, "OK")
        ]


async def test_pages_go_from_the_newest_to_the_oldest_each_entry_once(broker: Guarded) -> None:
    names = [f"{TOPIC}-{number}" for number in range(7)]
    for name in names:
        await broker.ok("PUT", name)
    seen, token = [], ""
    while True:
        query = {"pageSize": "3", **({"pageToken": token} if token else {})}
        answer = await broker.ok("GET", "projects/guarded/auditLogs", params=query)
        seen += [entry["protoPayload"]["resourceName"] for entry in answer["entries"]]
        if not (token := answer.get("nextPageToken", "")):
            break
    assert seen == names[::-1]


async def test_a_filter_finds_by_whom_what_and_when(broker: Guarded) -> None:
    nobody = await broker.key(await broker.account(role=""))
    await broker.ok("PUT", TOPIC)
    await broker.call("GET", TOPIC, headers=broker.bearer(nobody))
    later = (broker.now + timedelta(hours=1)).isoformat()

    async def found(text: str) -> list[str]:
        return [_short(entry)[0] for entry in await _entries(broker, text)]

    email = "protoPayload.authenticationInfo.principalEmail"
    assert await found(f'{email}="{nobody["client_email"]}"') == ["GetTopic"]
    assert await found(
        f'protoPayload.methodName="{METHOD}CreateTopic" AND {email}!="{nobody["client_email"]}"'
    ) == ["CreateTopic"]
    assert await found("protoPayload.status.code=7") == ["GetTopic"]
    assert await found(f'protoPayload.resourceName:"topics/" timestamp<"{later}"') == ["GetTopic", "CreateTopic"]
    assert await found(f'timestamp>="{later}"') == []


async def test_a_text_that_ends_in_a_star_stands_for_all_that_begin_with_the_rest(broker: Guarded) -> None:
    for name in ("orders", "orders-2", "order_s", "parcels"):
        await broker.ok("PUT", f"projects/guarded/topics/{name}")
    await broker.ok("PUT", "projects/guarded/subscriptions/orders", {"topic": TOPIC})

    async def found(text: str) -> set[str]:
        entries = await _entries(broker, text)
        return {entry["protoPayload"]["resourceName"].removeprefix("projects/guarded/") for entry in entries}

    topics, name = {f"topics/{name}" for name in ("orders", "orders-2", "order_s", "parcels")}, "resourceName"
    assert await found(f'protoPayload.{name}="projects/guarded/topics/*"') == topics
    assert await found(f'protoPayload.{name}="projects/guarded/topics/orders*"') == {
        "topics/orders",
        "topics/orders-2",
    }
    assert await found(f"protoPayload.{name}=projects/guarded/topics/order_*") == {"topics/order_s"}
    assert await found(f'protoPayload.{name}="projects/guarded/topics/orders"') == {"topics/orders"}
    assert await found(f'protoPayload.{name}!="projects/guarded/topics/*"') == {"subscriptions/orders"}
    assert await found(f'protoPayload.methodName="{METHOD}*" AND protoPayload.{name}:par') == {"topics/parcels"}
    email = "protoPayload.authenticationInfo.principalEmail"
    assert (
        await found(f"{email}=broker-admin@*")
        == await found(f"{email}:system")
        == topics | {"subscriptions/orders"}
    )
    assert await found(f"{email}=admin@*") == await found(f"{email}:nobody") == set()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"filter": "color=red"}, "color"),
        ({"filter": 'protoPayload.methodName="a" OR'}, "OR"),
        ({"filter": "timestamp>=yesterday"}, "yesterday"),
        ({"filter": "protoPayload.status.code=99"}, "99"),
        ({"filter": 'protoPayload.methodName>"a"'}, "protoPayload.methodName"),
        ({"filter": "timestamp" + " " * 3000}, "3009"),
        ({"pageToken": "x"}, "page_token"),
        ({"pageToken": "9" * 30}, "page_token"),
        ({"pageSize": "-1"}, "page_size"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused_by_name(
    broker: Guarded, query: dict[str, str], named: str
) -> None:
    refused = await broker.call("GET", "projects/guarded/auditLogs", params=query)
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]


async def test_who_has_no_right_to_it_reads_none_and_no_project_reads_anothers(broker: Guarded) -> None:
    somebody = await broker.key(await broker.account(role="roles/editor"))
    path = "projects/guarded/auditLogs"
    assert (await broker.call("GET", path, headers=broker.bearer(somebody))).status_code == 403
    await broker.ok("PUT", "projects/other/topics/theirs")
    assert "theirs" not in json.dumps(await _entries(broker))


# --- which calls ---------------------------------------------------------------------------------------------


def test_what_only_looks_or_uses_is_not_taken_for_a_change_and_all_else_is() -> None:
    rpcs = {row.name for row in RPCS}
    changes = sorted(row.name for row in RPCS if row.audit.is_change)
    assert "Subscriber.Seek" in changes
    assert "IAMPolicy.SetIamPolicy" in changes
    assert {rpc.rpartition(".")[2] for rpc in rpcs - set(changes)} >= {
        "Publish",
        "Pull",
        "StreamingPull",
        "GetTopic",
    }
    verbs = ("Create", "Update", "Delete", "Set", "Modify", "Detach", "Seek", "Pause", "Resume", "Commit")
    verbs += ("Rollback", "Disable", "Enable", "Undelete", "Patch", "Rotate", "Freeze", "Unfreeze", "Undo", "Purge")
    verbs += ("Cancel", "Copy", "Discard", "Edit", "Import", "Put", "Redrive", "Resend", "Reset", "Run")
    verbs += ("Recover", "Release", "Replace", "Replay", "Retract", "DeadLetter")
    assert [rpc for rpc in changes if not rpc.rpartition(".")[2].startswith(verbs)] == []


def test_a_text_in_a_filter_may_have_quotes_and_what_is_no_filter_says_where() -> None:
    [comparison] = parse_log_filter(r'protoPayload.resourceName : "a \"b\" \\c"')
    assert comparison.value == 'a "b" \\c'
    with pytest.raises(InvalidArgument, match=r"not valid at '.x.'"):
        parse_log_filter('timestamp >= 2026-01-01T00:00:00Z AND "x"')
