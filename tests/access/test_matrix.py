"""Every call, by each kind of caller, over both APIs: generated from the table of permissions."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2, status_pb2

from broker.access.principals.caller import ALL_USERS
from broker.access.principals.permissions import PREDEFINED_ROLES
from broker.api.generated.messages import request_of
from broker.api.permissions import On
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json
from tests.fixtures.registered import METHODS, ROUTES, RPCS

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC, SUBSCRIPTION = "projects/guarded/topics/orders", "projects/guarded/subscriptions/billing"
SNAPSHOT = "projects/guarded/snapshots/some-snapshot"
THERE = {"topics": "orders", "subscriptions": "billing", "snapshots": "some-snapshot", "schemas": "some-schema"}
# What is missing is named where a call is allowed, and cannot be made by it: the matrix changes nothing.
CANNOT_BE_MADE: dict[str, Json] = {
    "Publisher.CreateTopic": {"messageRetentionDuration": "1s"},
    "Subscriber.CreateSubscription": {"topic": "projects/guarded/topics/missing"},
    "Subscriber.CreateSnapshot": {"subscription": "projects/guarded/subscriptions/missing"},
    "IAM.CreateServiceAccount": {"accountId": "-"},
    "ApiKeys.CreateApiKey": {"roles": ["roles/none"]},
    "IAMPolicy.SetIamPolicy": {"policy": {"version": 2}},
}
NEEDS = {row.name: row.needs.all for row in RPCS}
INSTEAD = {row.name: row.needs.instead for row in RPCS}
PATHS = {row.name: row.target for row in RPCS if row.target} | {
    "Publisher.Publish": "topic",
    **{f"Subscriber.{name}": "subscription" for name in ("Pull", "Acknowledge", "ModifyAckDeadline")},
}


@dataclass(frozen=True)
class _Call:
    rpc: str
    collection: str  # of what it is about; empty: the project
    rest: tuple[str, str] | None  # method and path
    grpc: bytes = b""

    def needed(self) -> list[str]:
        """The permissions, in the order in which they are asked for."""
        found = []
        for need in NEEDS[self.rpc]:
            if need.mask or need.on is On.ACCOUNT or "dead_letter" in need.field:
                continue  # of what these requests do not have
            if need.permission == "pubsub.snapshots.seek":
                continue
            permission = need.permission
            found.append(permission if isinstance(permission, str) else permission[self.collection])
        return found

    def lacking(self, role: str) -> str:
        """The first permission that a caller with the role on the project has not, or nothing."""
        if any(need.on is On.INSTALLATION for need in NEEDS[self.rpc]):
            return self.needed()[0]  # no role on a project gives it
        if PREDEFINED_ROLES[role].intersection(INSTEAD[self.rpc]):
            return ""
        return next((name for name in self.needed() if name not in PREDEFINED_ROLES[role]), "")

    def name(self, *, missing: bool) -> str:
        """The resource in the path."""
        if self.rest is not None:
            path = self.rest[1].partition(":")[0].split("/")
        else:
            path = ["projects", "*"] + ([self.collection, "*"] if self.collection else [])
        for index in (index for index, part in enumerate(path) if part == "*"):
            there = "guarded" if index == 1 else THERE.get(path[index - 1], "missing")
            path[index] = "missing" if missing and index > 1 else there
        return "/".join(path)


def _calls() -> Iterator[_Call]:
    for route in ROUTES:
        if route.rpc.needs.all:
            parts = route.path.partition(":")[0].split("/")
            yield _Call(route.rpc.name, parts[2] if len(parts) > 3 else "", (route.method, route.path))
    about = {route.rpc.name: route.path.split("/") for route in reversed(ROUTES)}
    for method in METHODS:
        if method.rpc.needs.all:
            parts = about.get(method.rpc.name, ["projects", "*", "subscriptions", "*"])
            yield _Call(method.rpc.name, parts[2] if len(parts) > 3 else "", None, method.path)


CALLS = list(_calls())


@dataclass
class _Apis:
    broker: Guarded
    channel: grpc.aio.Channel
    key: Json  # of an account without a role

    async def refusal(self, call: _Call, headers: dict[str, str], *, missing: bool) -> str:
        """UNAUTHENTICATED or PERMISSION_DENIED with its reason, or nothing."""
        name, body = call.name(missing=missing), CANNOT_BE_MADE.get(call.rpc, {})
        return await (self._by_rest if call.rest else self._by_grpc)(call, name, body, headers)

    async def _by_rest(self, call: _Call, name: str, body: Json, headers: dict[str, str]) -> str:
        assert call.rest is not None
        path = name + "".join(call.rest[1].partition(":")[1:])
        answer = await self.broker.call(call.rest[0], path, body, headers=headers)
        assert answer.status_code < 500, (call, answer.text)
        if answer.status_code not in (401, 403):
            return ""
        assert ("www-authenticate" in answer.headers) == (answer.status_code == 401)
        error = answer.json()["error"]
        return f"{error['status']} {error['details'][0]['reason']} {_permission(error['details'][0])}".strip()

    async def _by_grpc(self, call: _Call, name: str, body: Json, headers: dict[str, str]) -> str:
        request = request_of(call.rpc)()
        ParseDict(body, request)
        *parents, last = PATHS.get(call.rpc, request.DESCRIPTOR.fields[0].name).split(".")
        holder = request
        for parent in parents:
            holder = getattr(holder, parent)
        setattr(holder, last, name)
        metadata = tuple((key.lower(), value) for key, value in headers.items())
        try:
            if call.rpc == "Subscriber.StreamingPull":
                request.stream_ack_deadline_seconds = 10
                opened = self.channel.unary_stream(call.grpc.decode())  # its one request, and the half-close
                await opened(request.SerializeToString(), metadata=metadata).read()
            else:
                await self.channel.unary_unary(call.grpc.decode())(request.SerializeToString(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            refused = error
        else:
            return ""
        assert refused.code().name not in ("UNKNOWN", "INTERNAL"), (call, refused)
        if refused.code().name not in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            return ""
        return f"{refused.code().name} {_reason_over_grpc(refused)}".strip()


def _permission(info: Json) -> str:
    permission: str = info["metadata"].get("permission", "")
    return permission


def _reason_over_grpc(error: grpc.aio.AioRpcError) -> str:
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return f"{info.reason} {info.metadata.get('permission', '')}".strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apis(clone: Callable[[], Any]) -> AsyncIterator[_Apis]:
    with clone() as database_url:
        async with guarded(database_url) as broker:
            await broker.ok("PUT", TOPIC)
            await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC})
            await broker.ok("PUT", SNAPSHOT, {"subscription": SUBSCRIPTION})
            schema = {"type": "AVRO", "definition": '"string"'}
            await broker.ok("POST", "projects/guarded/schemas", schema, params={"schemaId": "some-schema"})
            key = await broker.key(await broker.account(role=""))
            async with grpc.aio.insecure_channel(broker.client.base_url.netloc.decode()) as channel:
                yield _Apis(broker, channel, key)


async def _state(broker: Guarded) -> list[Json]:
    collections = ("topics", "subscriptions", "snapshots", "schemas", "serviceAccounts", "apiKeys")
    lists = [await broker.ok("GET", f"projects/guarded/{name}") for name in collections]
    policies = [await broker.ok("GET", f"{name}:getIamPolicy") for name in (TOPIC, SUBSCRIPTION, SNAPSHOT)]
    pulled = await broker.ok("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1, "returnImmediately": True})
    return [*lists, *policies, pulled]


async def _refusals(apis: _Apis, calls: Sequence[_Call], headers: dict[str, str]) -> set[str]:
    return {await apis.refusal(call, headers, missing=False) for call in calls}


@pytest.mark.parametrize(
    ("credential", "refusal"),
    [
        ("none", "UNAUTHENTICATED CREDENTIALS_MISSING"),
        ("expired", "UNAUTHENTICATED ACCESS_TOKEN_EXPIRED"),
        ("wrong audience", "UNAUTHENTICATED ACCESS_TOKEN_TYPE_UNSUPPORTED"),
        ("revoked", "UNAUTHENTICATED ACCESS_TOKEN_TYPE_UNSUPPORTED"),
    ],
)
async def test_every_call_is_refused_over_both_apis_to_who_proves_nothing(
    apis: _Apis, credential: str, refusal: str
) -> None:
    broker, before = apis.broker, await _state(apis.broker)
    headers = {}
    if credential == "expired":
        headers = broker.bearer(apis.key, iat=1_000_000, exp=1_003_600)
    elif credential == "wrong audience":
        headers = broker.bearer(apis.key, aud="https://elsewhere.example/")
    elif credential == "revoked":
        key = await broker.key({"name": apis.key["name"].partition("/keys/")[0]})
        headers = broker.bearer(key)
        await broker.ok("DELETE", key["name"])
    assert await _refusals(apis, CALLS, headers) == {refusal}
    assert await _state(broker) == before


async def test_every_call_is_refused_over_both_apis_to_who_has_no_role(apis: _Apis) -> None:
    before, shown = await _state(apis.broker), apis.broker.bearer(apis.key)
    for call in CALLS:
        refusal = await apis.refusal(call, shown, missing=False)
        assert refusal == f"PERMISSION_DENIED IAM_PERMISSION_DENIED {call.needed()[0]}", call
    assert await _state(apis.broker) == before


@pytest.mark.parametrize("role", PREDEFINED_ROLES)
async def test_a_role_on_a_project_allows_the_calls_whose_permissions_it_has_and_no_other(
    apis: _Apis, role: str
) -> None:
    broker, before = apis.broker, await _state(apis.broker)
    member = f"serviceAccount:{apis.key['client_email']}"
    policy = {"bindings": [{"role": role, "members": [member]}]}
    await broker.ok("POST", "projects/guarded:setIamPolicy", {"policy": policy})
    shown = broker.bearer(apis.key)
    try:
        for call in CALLS:
            lacking = call.lacking(role)
            expected = f"PERMISSION_DENIED IAM_PERMISSION_DENIED {lacking}" if lacking else ""
            assert await apis.refusal(call, shown, missing=not lacking) == expected, call
    finally:
        await broker.ok("POST", "projects/guarded:setIamPolicy", {"policy": {}})
    assert await _state(broker) == before


async def test_who_shows_nothing_may_do_what_a_policy_lets_all_users_do_and_nothing_else(apis: _Apis) -> None:
    broker = apis.broker
    other = "projects/guarded/topics/other"
    bindings = [{"role": "roles/pubsub.publisher", "members": [ALL_USERS]}]
    await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {"bindings": bindings}})
    try:
        message = {"messages": [{"data": "aGk="}]}
        assert (await broker.call("POST", f"{TOPIC}:publish", message, headers={})).status_code == 200
        request = ParseDict({"topic": TOPIC} | message, request_of("Publisher.Publish")())
        await apis.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")(request.SerializeToString())
        confined = broker.bearer(apis.key, exp=1)
        assert (await broker.call("POST", f"{TOPIC}:publish", message, headers=confined)).status_code == 401
        refused = [
            await broker.call("POST", f"{name}:publish", message, headers={})
            for name in (other, "projects/elsewhere/topics/orders")
        ] + [await broker.call("GET", name, headers={}) for name in (TOPIC, other)]
        assert {(answer.status_code, answer.text) for answer in refused} == {(401, refused[0].text)}
        for call in CALLS:
            if call.needed() != ["pubsub.topics.publish"]:
                assert await apis.refusal(call, {}, missing=False) == "UNAUTHENTICATED CREDENTIALS_MISSING", call
    finally:
        await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {}})
    assert (await broker.call("POST", f"{TOPIC}:publish", message, headers={})).status_code == 401
