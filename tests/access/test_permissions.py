"""Who may do what: the table of permissions, and the checks at both APIs."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller, Grant
from broker.access.principals.permissions import PERMISSIONS, PREDEFINED_ROLES
from broker.access.principals.policy import ABOVE_PROJECTS, Binding, Policy, chain_of, is_allowed
from broker.api.generated.messages import request_of
from broker.api.permissions import Need
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json, eventually
from tests.fixtures.registered import METHODS, ROUTES, RPCS

TOPIC, SUBSCRIPTION = "projects/guarded/topics/orders", "projects/guarded/subscriptions/billing"
HOT = ("Pull", "Acknowledge", "ModifyAckDeadline", "StreamingPull")
NAMES = {
    "project": "projects/guarded",
    "topic": TOPIC,
    "resource": TOPIC,
    "subscription": SUBSCRIPTION,
    "snapshot": "projects/guarded/snapshots/some-snapshot",
}
SOMEBODY = Caller("user:a@b.c", frozenset({"user:a@b.c", ALL_USERS, ALL_AUTHENTICATED_USERS}), "key:1")


def _all_needs() -> list[Need]:
    return [need for row in RPCS for need in (*row.needs.all, *row.needs.to_update)]


def _permissions(need: Need) -> Sequence[str]:
    return [need.permission] if isinstance(need.permission, str) else list(need.permission.values())


def test_only_these_calls_need_no_permission() -> None:
    of_operations = {f"Operations.{verb}Operation" for verb in ("Get", "Wait", "Cancel", "Delete")}
    assert {row.name for row in RPCS if not row.needs.all} - of_operations == {  # they ask once it is found
        "Health.Check",
        "Health.Watch",
        "ServerReflection.ServerReflectionInfo",
        "IAMPolicy.TestIamPermissions",
        "IAM.QueryTestablePermissions",
        "IAM.ListPredefinedRoles",
        "IAM.GetPredefinedRole",
        "IAM.WhoAmI",
        "IAM.CreateSignInLink",  # the link can do what its caller can do
        "Projects.ListProjects",
        "SearchProject",  # finds what its caller may list
    }


def test_each_permission_that_is_needed_is_in_a_role_and_the_owner_has_all() -> None:
    assert {name for need in _all_needs() for name in _permissions(need)} <= PERMISSIONS
    for role, permissions in PREDEFINED_ROLES.items():
        assert permissions <= PERMISSIONS == PREDEFINED_ROLES["roles/owner"], role


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("roles/pubsub.publisher", ["topics.publish"], ["topics.get", "subscriptions.consume"]),
        ("roles/pubsub.subscriber", ["subscriptions.consume", "snapshots.seek"], ["topics.publish"]),
        ("roles/pubsub.viewer", ["topics.get", "snapshots.list"], ["subscriptions.consume", "topics.update"]),
        ("roles/pubsub.editor", ["topics.publish", "subscriptions.delete"], ["topics.setIamPolicy"]),
        ("roles/pubsub.admin", ["topics.setIamPolicy", "topics.publish"], []),
    ],
)
def test_a_predefined_role_allows_what_google_says(role: str, may: list[str], may_not: list[str]) -> None:
    policies = {TOPIC: Policy((Binding(role, frozenset({SOMEBODY.member})),))}
    for names, expected in ((may, True), (may_not, False)):
        for name in names:
            allowed = is_allowed(SOMEBODY, f"pubsub.{name}", chain_of(TOPIC), policies, PREDEFINED_ROLES)
            assert allowed is expected, name


@pytest.mark.parametrize("where", [TOPIC, "projects/guarded", ABOVE_PROJECTS])
def test_a_policy_holds_for_all_below_and_for_nothing_else(where: str) -> None:
    policies = {where: Policy((Binding("roles/pubsub.publisher", frozenset({ALL_AUTHENTICATED_USERS})),))}

    def allowed(caller: Caller, resource: str) -> bool:
        return is_allowed(caller, "pubsub.topics.publish", chain_of(resource), policies, PREDEFINED_ROLES)

    assert allowed(SOMEBODY, TOPIC)
    assert allowed(SOMEBODY, f"{TOPIC}x") == (where != TOPIC)
    assert allowed(SOMEBODY, TOPIC.replace("guarded", "guarded2")) == (where == ABOVE_PROJECTS)


def test_an_api_key_may_do_what_its_roles_say_where_it_is_restricted_to_and_nothing_else() -> None:
    grants = (Grant(frozenset({"roles/pubsub.publisher"}), TOPIC),)
    key = Caller("apiKey:1", SOMEBODY.members, "apiKey:1", grants=grants, confined=True)
    everything = {ABOVE_PROJECTS: Policy((Binding("roles/owner", frozenset({ALL_USERS})),))}
    for permission, resource, expected in (
        ("pubsub.topics.publish", TOPIC, True),
        ("pubsub.topics.publish", f"{TOPIC}x", False),
        ("pubsub.topics.get", TOPIC, False),
    ):
        assert is_allowed(key, permission, chain_of(resource), everything, PREDEFINED_ROLES) is expected


@dataclass
class _Account:
    broker: Guarded
    key: Json

    @property
    def member(self) -> str:
        return f"serviceAccount:{self.key['client_email']}"

    async def status(self, method: str, path: str, body: Any = None) -> int:
        headers = self.broker.bearer(self.key)
        return (await self.broker.call(method, path, body, headers=headers)).status_code

    async def given(self, role: str, resource: str) -> None:
        await self.broker.ok(
            "POST",
            f"{resource}:setIamPolicy",
            {"policy": {"bindings": [{"role": role, "members": [self.member]}]}},
        )


async def _somebody(broker: Guarded) -> _Account:
    await broker.ok("PUT", TOPIC)
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC})
    return _Account(broker, await broker.key(await broker.account(role="")))


def _path(pattern: str) -> str:
    names = {
        "topics": "orders",
        "subscriptions": "billing",
        "snapshots": "some-snapshot",
        "schemas": "some-schema",
        "serviceAccounts": "broker-admin@broker-system.iam.broker.internal",
    }
    parts = pattern.split("/")
    for index in range(1, len(parts), 2):
        name = "guarded" if parts[index - 1] == "projects" else names.get(parts[index - 1], "x1")
        parts[index] = parts[index].replace("*", name, 1)
    return "/".join(parts)


async def test_who_has_no_role_is_refused_by_every_route_and_changes_nothing(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    bodies = {
        "Subscriber.CreateSubscription": {"topic": TOPIC},
        "Subscriber.CreateSnapshot": {"subscription": SUBSCRIPTION},
    }
    shown = broker.bearer(somebody.key)
    for route in ROUTES:
        if not route.rpc.needs.all:
            continue
        path, body = _path(route.path), bodies.get(route.rpc.name, {})
        assert (await broker.call(route.method, path, body, headers={})).status_code == 401, route
        refused = await broker.call(route.method, path, body, headers=shown)
        assert refused.status_code == 403, (route, refused.text)
        error = refused.json()["error"]
        assert error["status"] == "PERMISSION_DENIED"
        assert error["details"][0]["reason"] == "IAM_PERMISSION_DENIED"
        assert error["details"][0]["metadata"]["permission"] in error["message"]
    assert (await broker.ok("GET", "projects/guarded/topics"))["topics"] == [{"name": TOPIC}]
    assert len((await broker.ok("GET", "projects/guarded/subscriptions"))["subscriptions"]) == 1


async def test_whether_a_resource_exists_is_not_told(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    for method, name, verb in (("GET", TOPIC, ""), ("GET", SUBSCRIPTION, ""), ("POST", SUBSCRIPTION, ":detach")):
        answers = [
            (await broker.call(method, path, headers=broker.bearer(somebody.key))).json()["error"]["message"]
            for path in (f"{name}{verb}", f"{name}-2{verb}")
        ]
        assert answers[0] == answers[1].replace("-2'", "'"), answers


async def test_a_role_on_a_topic_allows_publishing_there_until_it_is_taken_away(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    message = {"messages": [{"data": "aGk="}]}
    assert await somebody.status("POST", f"{TOPIC}:publish", message) == 403
    await somebody.given("roles/pubsub.publisher", TOPIC)
    assert await somebody.status("POST", f"{TOPIC}:publish", message) == 200
    assert await somebody.status("GET", TOPIC) == 403
    await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {}})
    assert await somebody.status("POST", f"{TOPIC}:publish", message) == 403


async def test_a_dead_letter_topic_needs_the_right_to_publish_there(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await broker.ok("PUT", "projects/other/topics/dead")
    await somebody.given("roles/pubsub.editor", "projects/guarded")
    policy = {"deadLetterPolicy": {"deadLetterTopic": "projects/other/topics/dead", "maxDeliveryAttempts": 5}}
    new = "projects/guarded/subscriptions/second"
    assert await somebody.status("PUT", new, {"topic": TOPIC} | policy) == 403
    assert await somebody.status("PUT", new, {"topic": TOPIC}) == 200
    patch = {"subscription": {"name": new} | policy, "updateMask": "deadLetterPolicy"}
    assert await somebody.status("PATCH", new, patch) == 403


async def test_pushes_carry_tokens_of_accounts_that_the_caller_may_act_as_alone(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await somebody.given("roles/pubsub.editor", "projects/guarded")
    pusher = await broker.account("some-pusher", role="")
    push = {
        "pushConfig": {"pushEndpoint": "http://127.0.0.1:9/", "oidcToken": {"serviceAccountEmail": pusher["email"]}}
    }
    assert await somebody.status("POST", f"{SUBSCRIPTION}:modifyPushConfig", push) == 403
    await somebody.given("roles/iam.serviceAccountUser", pusher["name"])
    assert await somebody.status("POST", f"{SUBSCRIPTION}:modifyPushConfig", push) == 200


async def test_a_policy_is_given_back_and_a_stale_etag_is_refused(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    for resource in (TOPIC, SUBSCRIPTION, "projects/guarded", (await broker.account("other-one", role=""))["name"]):
        get = "GET" if resource in (TOPIC, SUBSCRIPTION) else "POST"
        empty = await broker.ok(get, f"{resource}:getIamPolicy", None if get == "GET" else {})
        assert empty == {"etag": "ACAB"}  # version 0, as at Google where no policy was ever set
        bindings = [{"role": "roles/viewer", "members": [somebody.member, "user:a@b.c"]}]
        policy = {"bindings": bindings, "etag": empty["etag"]}
        made = await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})
        assert made["version"] == 1
        assert sorted(made["bindings"][0]["members"]) == sorted(bindings[0]["members"])  # type: ignore[type-var]
        assert await broker.ok(get, f"{resource}:getIamPolicy", None if get == "GET" else {}) == made
        assert (await broker.call("POST", f"{resource}:setIamPolicy", {"policy": policy})).status_code == 409


@pytest.mark.parametrize(
    ("binding", "named"),
    [
        ({"role": "roles/viewer", "members": ["somebody"]}, "somebody"),
        ({"role": "roles/viewer", "members": ["robot:a@b.c"]}, "robot:a@b.c"),
        (
            {"role": "roles/viewer", "members": ["serviceAccount:nobody@guarded.iam.broker.internal"]},
            "serviceAccount:nobody@guarded.iam.broker.internal",
        ),
        ({"role": "roles/viewer", "members": ["serviceAccount:demo.svc.id.goog[]"]}, "demo.svc.id.goog[]"),
        ({"role": "roles/none.such", "members": ["user:a@b.c"]}, "roles/none.such"),
        ({"role": "roles/viewer", "members": ["user:a@b.c"], "condition": {"title": "nights"}}, "nights"),
    ],
)
async def test_a_policy_that_cannot_be_is_refused_by_name(broker: Guarded, binding: Json, named: str) -> None:
    refused = await broker.call("POST", "projects/guarded:setIamPolicy", {"policy": {"bindings": [binding]}})
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]


OF_GOOGLE = [
    "serviceAccount:service-1234@gcp-sa-pubsub.iam.gserviceaccount.com",  # the step for dead letters; Terraform
    "serviceAccount:gmail-api-push@system.gserviceaccount.com",
    "serviceAccount:1234-compute@developer.gserviceaccount.com",
    "serviceAccount:demo.svc.id.goog[shop/billing]",
    "deleted:serviceAccount:billing@demo.iam.gserviceaccount.com?uid=123456789012345678901",
]


async def test_service_accounts_of_other_domains_are_stored_and_returned(broker: Guarded) -> None:
    await _somebody(broker)
    for member in OF_GOOGLE:
        for set_policy in (_set_policy_by_rest, _set_policy_by_grpc):
            binding = {"role": "roles/pubsub.publisher", "members": [member]}
            await set_policy(broker, TOPIC, binding)
            assert (await broker.ok("GET", f"{TOPIC}:getIamPolicy"))["bindings"] == [binding]
            await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {}})


async def _set_policy_by_rest(broker: Guarded, resource: str, binding: Json) -> None:
    await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": {"bindings": [binding]}})


async def _set_policy_by_grpc(broker: Guarded, resource: str, binding: Json) -> None:
    request = request_of("IAMPolicy.SetIamPolicy")(resource=resource)
    request.policy.bindings.add(**binding)
    metadata = tuple((name.lower(), value) for name, value in broker.bearer().items())
    async with grpc.aio.insecure_channel(broker.client.base_url.netloc.decode()) as channel:
        call = channel.unary_unary("/google.iam.v1.IAMPolicy/SetIamPolicy")
        await call(request.SerializeToString(), metadata=metadata)


async def test_addresses_are_compared_without_regard_to_case(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    shouted = somebody.member.replace("serviceAccount:", "").upper()
    members = [f"serviceAccount:{shouted}", "user:Alice@Example.COM", "domain:Example.COM", "group:Ops@Example.com"]
    principal = "principal://iam.example/subject/Alice"
    bindings = [{"role": "roles/pubsub.viewer", "members": [*members, principal]}]
    set_ = await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {"bindings": bindings}})
    lowered = ["domain:example.com", "group:ops@example.com", principal, somebody.member, "user:alice@example.com"]
    assert sorted(set_["bindings"][0]["members"]) == sorted(lowered)
    assert await somebody.status("GET", TOPIC) == 200


async def test_an_account_of_a_project_with_capitals_is_found_by_its_address_in_any_case(broker: Guarded) -> None:
    body = {"accountId": "billing"}
    account = await broker.ok("POST", "projects/Shop/serviceAccounts", body)
    assert account["email"] == "billing@shop.iam.broker.internal"
    for email in (account["email"], "Billing@Shop.iam.broker.internal"):
        assert await broker.ok("GET", f"projects/-/serviceAccounts/{email}") == account
    # The same address in a project whose id differs in case alone: policies could not tell the two apart.
    refused = await broker.call("POST", "projects/shop/serviceAccounts", body)
    assert refused.status_code == 409
    assert "billing@shop.iam.broker.internal" in refused.json()["error"]["message"]


async def test_permissions_are_tested_without_any_permission(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await somebody.given("roles/pubsub.publisher", TOPIC)
    asked = {"permissions": ["pubsub.topics.publish", "pubsub.topics.get"]}
    shown = broker.bearer(somebody.key)
    assert await broker.ok("POST", f"{TOPIC}:testIamPermissions", asked, headers=shown) == {
        "permissions": ["pubsub.topics.publish"]
    }
    assert await broker.ok("POST", f"{TOPIC}-2:testIamPermissions", asked, headers=shown) == {}


async def test_a_new_topic_has_no_rights_of_an_old_one_of_its_name(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await somebody.given("roles/pubsub.viewer", TOPIC)
    assert await somebody.status("GET", TOPIC) == 200
    await broker.ok("DELETE", TOPIC)
    await broker.ok("PUT", TOPIC)
    assert await somebody.status("GET", TOPIC) == 403


async def test_a_pull_that_waits_ends_when_its_caller_may_no_more(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await somebody.given("roles/pubsub.subscriber", SUBSCRIPTION)
    waiting = asyncio.create_task(somebody.status("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1}))
    await eventually(lambda: bool(broker.broker.claiming.long_poll.waited_for()))
    await broker.ok("POST", f"{SUBSCRIPTION}:setIamPolicy", {"policy": {}})
    assert await waiting == 403


async def test_who_has_no_role_is_refused_by_every_method_of_grpc(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    metadata = tuple((name.lower(), value) for name, value in broker.bearer(somebody.key).items())
    requests = {
        "Publisher.Publish": ("topic", TOPIC),
        **{f"Subscriber.{name}": ("subscription", SUBSCRIPTION) for name in HOT},
        "Subscriber.CreateSnapshot": ("subscription", SUBSCRIPTION),
        "Subscriber.CreateSubscription": ("topic", TOPIC),
    }
    async with grpc.aio.insecure_channel(broker.client.base_url.netloc.decode()) as channel:
        for method in METHODS:
            rpc, needs = method.rpc.name, method.rpc.needs.all
            if not needs or rpc.startswith("SchemaService."):  # the matrix has them
                continue
            request = request_of(rpc)()
            field, name = requests.get(rpc, (needs[0].field, ""))
            *parents, last = field.split(".")
            holder = request
            for parent in parents:
                holder = getattr(holder, parent)
            kind = last if last != "name" else (parents or ["topic"])[0]
            setattr(holder, last, name or NAMES[kind])
            if method.streaming is not None:
                request.stream_ack_deadline_seconds = 10
                stream: Any = channel.stream_stream(method.path.decode())(metadata=metadata)
                await stream.write(request.SerializeToString())
                answer = stream.read()
            else:
                answer = channel.unary_unary(method.path.decode())(request.SerializeToString(), metadata=metadata)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await answer
            assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED, method


async def test_what_a_body_names_in_another_project_is_not_told_to_exist_or_not(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await broker.ok("PUT", "projects/other/topics/there")
    await broker.ok("PUT", "projects/other/subscriptions/there", {"topic": "projects/other/topics/there"})
    await broker.ok("PUT", "projects/other/snapshots/there", {"subscription": "projects/other/subscriptions/there"})
    await somebody.given("roles/pubsub.editor", "projects/guarded")
    new, dead = "projects/guarded/subscriptions/second", {"maxDeliveryAttempts": 5}
    asked: list[tuple[str, str, Any]] = [
        ("PUT", new, {"topic": "projects/other/topics/NAME"}),
        (
            "PUT",
            new,
            {"topic": TOPIC, "deadLetterPolicy": {"deadLetterTopic": "projects/other/topics/NAME"} | dead},
        ),
        ("PUT", "projects/guarded/snapshots/new-one", {"subscription": "projects/other/subscriptions/NAME"}),
        ("POST", f"{SUBSCRIPTION}:seek", {"snapshot": "projects/other/snapshots/NAME"}),
        ("GET", "projects/other/topics/NAME/subscriptions", None),
        ("GET", "projects/other/topics/NAME/snapshots", None),
    ]
    for method, path, body in asked:
        answers = []
        for name in ("there", "missing"):
            sent = json.loads(json.dumps(body).replace("NAME", name))
            headers = broker.bearer(somebody.key)
            answer = await broker.call(method, path.replace("NAME", name), sent, headers=headers)
            assert answer.status_code == 403, (path, answer.text)
            answers.append(answer.text.replace(name, "NAME"))
        assert answers[0] == answers[1]


async def test_the_ack_ids_of_another_project_are_worth_nothing(broker: Guarded) -> None:
    somebody = await _somebody(broker)
    await broker.ok("PUT", "projects/own/topics/orders")
    own = "projects/own/subscriptions/own-one"
    await broker.ok("PUT", own, {"topic": "projects/own/topics/orders"})
    await somebody.given("roles/pubsub.admin", "projects/own")
    await broker.ok("POST", f"{TOPIC}:publish", {"messages": [{"data": "aGk="}]})
    pulled = await broker.ok("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1})
    stolen = {"ackIds": [pulled["receivedMessages"][0]["ackId"]]}
    assert await somebody.status("POST", f"{SUBSCRIPTION}:acknowledge", stolen) == 403
    assert await somebody.status("POST", f"{own}:acknowledge", stolen) in (200, 400)
    assert await somebody.status("POST", f"{own}:modifyAckDeadline", stolen | {"ackDeadlineSeconds": 0}) in (
        200,
        400,
    )
    await broker.ok("POST", f"{SUBSCRIPTION}:modifyAckDeadline", stolen | {"ackDeadlineSeconds": 0})
    again = await broker.ok("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1})
    assert again["receivedMessages"][0]["message"]["data"] == "aGk="
