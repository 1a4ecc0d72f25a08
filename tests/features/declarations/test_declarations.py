"""`broker apply` and `broker export`: what is declared is so, and nothing else is touched."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.api import Api
from broker.features.declarations import json_schema
from broker.features.declarations.carrying_out import carry_out
from broker.features.declarations.json_schema import subscription_schema, topic_schema
from broker.features.declarations.plan import make_plan
from broker.features.declarations.reading import Declared
from broker.features.declarations.state import read_state
from broker.model import subscription, topic
from tests.cli.client.terminal import Terminal, Typed
from tests.fixtures.broker import NO_TLS, Json

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'
WIDER = AVRO.replace("]", ', {"name": "note", "type": "string", "default": ""}]')


@dataclass
class Project:
    """One of its own, with files of its own."""

    terminal: Terminal
    client: httpx.Client
    directory: Path
    name: str

    def another(self) -> "Project":
        return Project(self.terminal, self.client, self.directory, f"projects/test-{uuid.uuid4().hex[:10]}")

    def put(self, path: str, body: Json) -> Json:
        return self._ok(self.client.put(f"/v1/{self.name}/{path}", json=body))

    def get(self, path: str) -> Json:
        return self._ok(self.client.get(f"/v1/{self.name}/{path}"))

    def names(self) -> set[str]:
        found = [self.get(kind).get(kind, []) for kind in ("topics", "subscriptions")]
        return {one["name"] for some in found for one in some}

    def apply(self, declared: Any, *options: str) -> Typed:
        file = self.directory / f"{uuid.uuid4().hex}.yaml"
        file.write_text(declared if isinstance(declared, str) else yaml.safe_dump(declared, sort_keys=False))
        project = self.name.removeprefix("projects/")
        return self.terminal.pipe(f"broker apply --file {file} --project {project} {' '.join(options)}")

    def plan(self, declared: Any, *options: str) -> list[Json]:
        """What is done; with --dry-run what would be."""
        done = self.apply(declared, "--json", *options)
        assert done.code == 0, done.text
        plan: list[Json] = json.loads(done.text)
        return plan

    def actions(self, declared: Any, *options: str) -> dict[str, str]:
        plan = self.plan(declared, *options)
        return {one["name"].removeprefix(f"{self.name}/"): one["action"] for one in plan if one["action"] != "none"}

    def export(self) -> str:
        done = self.terminal.pipe(f"broker export --project {self.name.removeprefix('projects/')}")
        assert done.code == 0, done.text
        return done.text

    def _ok(self, response: httpx.Response) -> Json:
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        return answer


@pytest.fixture
def here(
    terminal: Terminal, broker_url: str, project: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Project]:
    monkeypatch.setenv("BROKER_URL", broker_url)
    with httpx.Client(base_url=broker_url, verify=NO_TLS, timeout=60) as client:
        yield Project(terminal, client, tmp_path, project)


SHOP = {
    "schemas": {"order": {"type": "AVRO", "definition": AVRO}},
    "topics": {
        "orders": {
            "schemaSettings": {"schema": "order", "encoding": "JSON"},
            "labels": {"state": "x", "topic": "y"},
        },
        "letters": None,
    },
    "subscriptions": {
        "billing": {
            "topic": "orders",
            "filter": 'attributes.env = "prod"',
            "deadLetterPolicy": {"deadLetterTopic": "letters"},
            "retryPolicy": {"minimumBackoff": "1m"},
            "policy": {"bindings": [{"role": "roles/pubsub.viewer", "members": ["user:a@b.c"]}]},
        }
    },
}


def test_what_is_declared_is_made_once_and_changed_where_it_differs(here: Project) -> None:
    made = here.actions(SHOP)
    assert made == {
        "schemas/order": "create",
        "topics/orders": "create",
        "topics/letters": "create",
        "subscriptions/billing": "update",  # of its policy, which is the later step of that name
    }
    assert here.actions(SHOP) == {}
    found = here.get("subscriptions/billing")
    assert found["deadLetterPolicy"] == {"deadLetterTopic": f"{here.name}/topics/letters", "maxDeliveryAttempts": 5}
    assert found["retryPolicy"]["minimumBackoff"] == "60s"
    assert here.get("topics/orders")["labels"] == {"state": "x", "topic": "y", "applied-by": "broker"}
    assert here.get("subscriptions/billing:getIamPolicy")["bindings"][0]["members"] == ["user:a@b.c"]
    changed = json.loads(json.dumps(SHOP))
    changed["schemas"]["order"]["definition"] = WIDER
    changed["topics"]["orders"]["labels"] = {"state": "z"}
    del changed["subscriptions"]["billing"]["retryPolicy"]
    changed["subscriptions"]["billing"]["policy"] = {}
    plan = here.plan(changed, "--dry-run")
    assert [c["field"] for one in plan for c in one.get("changes", [])] == [
        "definition",
        "labels.state",
        "labels.topic",
        "retryPolicy.minimumBackoff",
        "bindings",
    ]
    assert not any(one["done"] for one in plan)
    assert here.get("topics/orders")["labels"]["state"] == "x"
    assert all(one["done"] for one in here.plan(changed) if one["action"] != "none")
    assert here.actions(changed) == {}
    assert "retryPolicy" not in here.get("subscriptions/billing")
    assert here.get("topics/orders")["labels"] == {"state": "z", "applied-by": "broker"}
    assert here.get("schemas/order?view=FULL")["definition"] == WIDER


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("topics: {t: {lables: {}}}", "topics.t: Additional properties are not allowed ('lables' was unexpected)"),
        ("topics:\n  t: {}\n  t: {}", " line 3: 't' is given twice"),
        ("topics: {t: {}}\n---\ntopics: {t: {}}", "topics.t is declared twice"),
        ("subscriptions: {s: {}}", 'subscriptions.s: "topic" is a required property'),
        (
            "topics: {projects/other/topics/t: {}}",
            "topics has 'projects/other/topics/t', which is not of projects/",
        ),
        ("topics: {t: {labels: {applied-by: me}}}", "the label applied-by is what `apply` marks things with"),
        ("topics: {t: {labels: {a: 1}}}", 'topics.t.labels.a: 1 is not of type "string"'),
        ("topics: {t: {extensions: {priority: 3}}}", "topics.t.extensions: Additional properties are not allowed"),
        ("topics: {t: 3}", 'topics.t: 3 is not of types "null", "object"'),
        ("topics: [", " line 1: it is not YAML: "),
    ],
)
def test_a_mistake_in_a_file_is_told_before_anything_is_done(here: Project, declared: str, said: str) -> None:
    done = here.apply(declared)
    assert (done.code, said in done.text) == (2, True), done.text
    assert here.names() == set()


def test_what_cannot_be_changed_is_named_with_the_way_out_and_nothing_is_done(here: Project) -> None:
    here.plan(SHOP)
    changed = json.loads(json.dumps(SHOP))
    changed["subscriptions"]["billing"]["enableMessageOrdering"] = True
    changed["topics"]["more"] = {}
    done = here.apply(changed)
    assert done.code == 1
    assert "enableMessageOrdering cannot be changed (" in done.text
    assert "`broker sub delete billing`" in done.text
    plan = json.loads(here.apply(changed, "--json").text)
    assert [one["action"] for one in plan if "problem" in one] == ["none"]
    assert not any(one["done"] for one in plan)
    assert f"{here.name}/topics/more" not in here.names()


def test_a_changed_filter_is_an_update_of_its_own_which_the_plan_explains(here: Project) -> None:
    here.plan(SHOP)
    wanted = 'attributes.env = "test"'
    changed = json.loads(json.dumps(SHOP))
    changed["subscriptions"]["billing"] |= {"filter": wanted, "ackDeadlineSeconds": 45}
    said = here.apply(changed, "--dry-run").text
    assert f'filter: attributes.env = "prod" → {wanted} (by setFilter, for messages published from then on' in said
    [step] = [one for one in json.loads(here.apply(changed, "--json").text) if one["action"] == "update"]
    notes = {change["field"]: change.get("note", "") for change in step["changes"]}
    assert notes["ackDeadlineSeconds"] == ""
    assert "earlier ones keep the verdict of the old filter" in notes["filter"]
    subscription = here.get("subscriptions/billing")
    assert (subscription["filter"], subscription["ackDeadlineSeconds"]) == (wanted, 45)
    assert here.actions(changed) == {}
    del changed["subscriptions"]["billing"]["filter"]
    assert here.actions(changed) == {"subscriptions/billing": "update"}
    assert here.apply(changed).code == 0
    assert "filter" not in here.get("subscriptions/billing")


def test_secrets_are_left_alone_unless_the_file_has_them_and_are_never_shown(here: Project) -> None:
    secret = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    here.put("topics/orders", {})
    config = {"pushEndpoint": "http://127.0.0.1:9/"}
    push = {"webhookSecrets": [secret], "messagesPerSecond": 5}
    body = {"topic": f"{here.name}/topics/orders", "pushConfig": config, "extensions": {"push": push}}
    prints = here.put("subscriptions/hook", body)["extensions"]["push"]["webhookSecretFingerprints"]
    exported = here.export()
    assert prints[0] in exported
    assert secret not in exported
    declared = yaml.safe_load(exported)
    assert here.actions(declared) == {}
    declared["subscriptions"]["hook"]["extensions"]["push"]["messagesPerSecond"] = 6
    assert here.actions(declared) == {"subscriptions/hook": "update"}
    assert here.get("subscriptions/hook")["extensions"]["push"]["webhookSecretFingerprints"] == prints
    elsewhere = here.another().apply(declared)
    assert (elsewhere.code, "a fingerprint is no secret" in elsewhere.text) == (1, True)
    push = declared["subscriptions"]["hook"]["extensions"]["push"]
    push["webhookSecrets"] = [secret]
    assert here.actions(declared) == {}
    push["webhookSecrets"] = ["whsec_" + "C2FVsBQIhrscChlQIMV-b5sSYspob7oD".replace("-", "A")]
    done = here.apply(declared)
    assert (done.code, push["webhookSecrets"][0] in done.text) == (0, False)
    assert here.get("subscriptions/hook")["extensions"]["push"]["webhookSecretFingerprints"] != prints
    push["webhookSecrets"] = []
    here.plan(declared)
    assert "webhookSecretFingerprints" not in here.get("subscriptions/hook")["extensions"]["push"]


def test_what_fails_half_way_says_what_is_done_and_goes_on_from_there(here: Project) -> None:
    declared: Json = {"topics": {"one": {}, "two": {"messageRetentionDuration": "1s"}, "three": {}}}
    done = here.apply(declared)
    assert done.code == 1
    assert f"topic {here.name}/topics/two: INVALID_ARGUMENT: " in done.text
    assert "; 1 of 3 steps are done; correct it and apply again" in done.text
    declared["topics"]["two"] = {}
    assert here.actions(declared) == {"topics/two": "create", "topics/three": "create"}


def test_the_format_has_every_field_that_can_be_set() -> None:
    for schema, domain in ((topic_schema(), topic), (subscription_schema(), subscription)):
        settable = domain.MUTABLE_FIELDS | {"topic", "filter", "enable_message_ordering"} & domain.IMMUTABLE_FIELDS
        camel = {"".join([a, *(w.capitalize() for w in b)]) for a, *b in (name.split("_") for name in settable)}
        assert set(schema["properties"]) - {"policy"} == camel


def test_all_that_is_said_of_extensions_is_in_the_format() -> None:
    text = json.dumps([topic_schema(), subscription_schema()])
    assert [path for path, about in json_schema.ABOUT.items() if json.dumps(about) not in text] == []


def test_schedules_are_declared_and_exported(here: Project) -> None:
    message = {"text": "close up", "attributes": {"state": "", "k": "v"}, "orderingKey": "o"}
    nightly = {"topic": "jobs", "message": message, "schedule": "30 2 * * *", "timeZone": "Europe/Berlin"}
    declared: Json = {"topics": {"jobs": {}}, "schedules": {"nightly": nightly}}
    assert here.actions(declared) == {"topics/jobs": "create", "schedules/nightly": "create"}
    assert here.actions(declared) == {}
    exported = here.export()
    assert yaml.safe_load(exported)["schedules"]["nightly"]["message"]["attributes"] == message["attributes"]
    assert here.actions(exported, "--prune") == {}
    there = here.another()
    there.plan(exported)
    assert there.export() == exported
    here.client.post(f"/v1/{here.name}/schedules/nightly:pause").raise_for_status()
    del nightly["schedule"], nightly["timeZone"]
    file = yaml.safe_dump(declared, sort_keys=False) + "    interval: 2h\n    start: 2050-01-01T01:00:00+01:00\n"
    assert here.actions(file) == {"schedules/nightly": "update"}
    assert here.actions(file) == {}
    found = here.get("schedules/nightly")
    assert (found["interval"], found["start"]) == ("7200s", "2050-01-01T00:00:00.000Z")
    assert found["state"] == "PAUSED"
    assert here.actions({"topics": {"jobs": {}}}, "--prune") == {}  # it has no mark


_seconds = st.integers(600, 100_000).map(lambda n: f"{n}s")
_label = st.text("abcxyz_-09", min_size=1, max_size=8)
_labels = st.dictionaries(st.one_of(st.sampled_from(["topic", "state", "schema", "name"]), st.just("k")), _label)
_maybe = st.fixed_dictionaries  # with `optional`: each field is there or is not
_priorities = st.one_of(
    st.integers(2, 10),
    _maybe({"levels": st.integers(2, 10)}, optional={"age": st.sampled_from(["60s", "0.5s", "604800s"])}),
    st.lists(st.integers(1, 1000), min_size=2, max_size=10).map(lambda w: {"levels": len(w), "weights": w}),
)
_of_topics = _maybe(
    {},
    optional={
        "delay": st.booleans(),
        "expiry": st.booleans(),
        "priorities": _priorities,
        "deduplication": _maybe({"window": st.just("600s")}, optional={"content": st.booleans()}),
        "shards": st.sampled_from([1, 2]),
    },
)
_topics = _maybe(
    {},
    optional={
        "labels": _labels,
        "messageRetentionDuration": _seconds,
        "kmsKeyName": st.just("k"),
        "extensions": _of_topics,
    },
)
_bindings = st.lists(
    _maybe(
        {
            "role": st.sampled_from(["roles/pubsub.viewer", "roles/pubsub.editor"]),
            "members": st.lists(st.sampled_from(["user:a@b.c", "user:d@e.f"]), min_size=1, unique=True),
        }
    ),
    unique_by=lambda binding: binding["role"],
)
_extensions = _maybe(
    {},
    optional={
        "onePerOrderingKey": st.booleans(),
        "deadLetterExpired": st.booleans(),
        "alerts": _maybe({}, optional={"age": _seconds, "backlog": st.integers(1, 99)}),
        "journal": _maybe(
            {"mode": st.sampled_from(["ALL", "FAILURES"])},
            optional={"sample": st.sampled_from([0.5, 1]), "retention": _seconds},
        ),
        "push": _maybe(
            {},
            optional={
                "messagesPerSecond": st.sampled_from([1, 2.5]),
                "urgent": st.booleans(),
                "digest": _maybe({}, optional={"maxMessages": st.integers(1, 1000), "maxDelay": st.just("10s")}),
                "circuitBreaker": _maybe({}, optional={"failureThreshold": st.sampled_from([5, 20])}),
            },
        ),
    },
)
_push = _maybe(
    {"pushEndpoint": st.just("http://127.0.0.1:9/")},
    optional={"attributes": st.just({"x-goog-version": "v1"}), "noWrapper": _maybe({}, optional={})},
)
_subscriptions = _maybe(
    {},
    optional={
        "labels": _labels,
        "ackDeadlineSeconds": st.sampled_from([0, 10, 30, 60]),
        "retainAckedMessages": st.booleans(),
        "messageRetentionDuration": st.one_of(_seconds, st.just("604800s")),
        "expirationPolicy": st.sampled_from([{}, {"ttl": "2678400s"}, {"ttl": "8640000s"}]),
        "filter": st.sampled_from(["", 'attributes:a AND attributes.b = "c\\"d"']),
        "enableMessageOrdering": st.booleans(),
        "retryPolicy": _maybe({}, optional={"minimumBackoff": st.just("0s"), "maximumBackoff": st.just("600s")}),
        "deadLetterPolicy": _maybe({}, optional={"maxDeliveryAttempts": st.integers(5, 9)}),
        "messageTransforms": st.just(
            [{"javascriptUdf": {"functionName": "f", "code": "function f(m) {\n return m;}"}}]
        ),
        "extensions": _extensions,
    },
)
_kinds = st.sampled_from([{}, {"enableExactlyOnceDelivery": True}, {"pushConfig": True}])


@pytest.mark.slow
@pytest.mark.ci
@settings(max_examples=15)
@given(
    topics=st.dictionaries(st.sampled_from(["t01", "t02", "t03"]), _topics, min_size=1),
    subscriptions=st.dictionaries(
        st.sampled_from(["s01", "s02", "s03"]), st.tuples(_subscriptions, _kinds, _push), min_size=1
    ),
    schema=st.sampled_from([None, AVRO, WIDER]),
    policies=st.dictionaries(st.sampled_from(["topics", "schemas", ""]), _bindings),
)
def test_applying_an_export_changes_nothing_and_makes_the_same_elsewhere(
    topics: dict[str, Json],
    subscriptions: dict[str, Any],
    schema: str | None,
    policies: dict[str, list[Json]],
    shared: Project,
) -> None:
    here = shared.another()
    declared = _made_topics(here, topics, schema) | {
        "subscriptions": _made_subscriptions(here, topics, subscriptions)
    }
    _make_policies(here, declared, policies)
    assert here.actions(declared, "--dry-run") == {}  # with fewer words, or with more than needed
    exported = here.export()
    assert here.actions(exported, "--dry-run", "--prune") == {}
    there = here.another()
    there.plan(exported)
    assert there.export() == exported
    assert there.actions(exported, "--prune") == {}


def _made_topics(here: Project, topics: dict[str, Json], schema: str | None) -> Json:
    """With a schema of the first one, if there is any."""
    if schema is None:
        for name, body in topics.items():
            here.put(f"topics/{name}", body)
        return {"topics": topics}
    definition = {"type": "AVRO", "definition": schema}
    here.client.post(f"/v1/{here.name}/schemas?schemaId=order", json=definition).raise_for_status()
    settings_ = {"schema": "order", "encoding": "JSON"}
    described = topics | {min(topics): topics[min(topics)] | {"schemaSettings": settings_}}
    for name, body in described.items():
        whole = {"schemaSettings": settings_ | {"schema": f"{here.name}/schemas/order"}}
        here.put(f"topics/{name}", body | (whole if "schemaSettings" in body else {}))
    return {"schemas": {"order": definition}, "topics": described}


def _make_policies(here: Project, declared: Json, policies: dict[str, list[Json]]) -> None:
    """Of the project, and of the first topic and schema."""
    for collection, bindings in policies.items():
        if collection and not declared.get(collection):
            continue
        holder = declared[collection] if collection else {}
        name = f"{here.name}/{collection}/{min(holder)}" if collection else here.name
        body = {"policy": {"bindings": bindings}}
        here.client.post(f"/v1/{name}:setIamPolicy", json=body).raise_for_status()
        if collection:
            holder[min(holder)] = holder[min(holder)] | body
        else:
            declared |= body


def _made_subscriptions(here: Project, topics: dict[str, Json], subscriptions: dict[str, Any]) -> Json:
    bodies: Json = {}
    for name, (body, kind, push) in subscriptions.items():
        full = body | kind | {"topic": min(topics)} | ({"pushConfig": push} if "pushConfig" in kind else {})
        if "deadLetterPolicy" in full:
            full["deadLetterPolicy"] = full["deadLetterPolicy"] | {"deadLetterTopic": min(topics)}
        if "digest" in full.get("extensions", {}).get("push", {}):
            full["enableMessageOrdering"] = False  # which pushes one message of a key at a time
            if "pushConfig" in full:  # without a wrapper there is one message in a request
                full["pushConfig"] = {name: part for name, part in push.items() if name != "noWrapper"}
        bodies[name] = full
        first = f"{here.name}/topics/{min(topics)}"
        policy = full.get("deadLetterPolicy")
        dead_letters = {"deadLetterPolicy": policy | {"deadLetterTopic": first}} if policy else {}
        here.put(f"subscriptions/{name}", full | {"topic": first} | dead_letters)
    return bodies


@pytest.fixture(scope="module")
def shared(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with pytest.MonkeyPatch.context() as patch, httpx.Client(base_url=broker_url, verify=NO_TLS) as client:
        patch.setenv("BROKER_URL", broker_url)
        directory = tmp_path_factory.mktemp("declared")
        patch.setenv("XDG_CONFIG_HOME", str(directory))
        yield Project(Terminal(), client, directory, "projects/none")


_ids = st.sets(st.sampled_from(["aaa", "bbb", "ccc", "ddd"]))


@pytest.mark.slow
@pytest.mark.ci
@settings(max_examples=15)
@given(ours=_ids, others=_ids, strangers=_ids, kept=_ids)
def test_prune_deletes_what_a_dry_run_named_and_that_is_ours(
    ours: set[str], others: set[str], strangers: set[str], kept: set[str], shared: Project
) -> None:
    here = shared.another()

    def declared(ids: set[str], dead_letter: str) -> Json:
        topics: Json = {f"{dead_letter}{one}": {} for one in ids}
        return {"topics": topics, "subscriptions": {f"{name}-sub": {"topic": name} for name in topics}}

    here.plan(declared(ours, "m"))
    here.plan(declared(others, "o"), "--owner", "somebody-else")
    for one in strangers:
        here.put(f"topics/s{one}", {"labels": {"applied-by-hand": "broker"}})
    before, next_ = here.names(), declared(ours & kept, "m")
    named = here.actions(next_, "--dry-run", "--prune")
    assert here.names() == before
    assert here.actions(next_) == {}  # without --prune nothing goes
    assert here.actions(next_, "--prune") == named
    gone = {name.removeprefix(f"{here.name}/") for name in before - here.names()}
    assert gone == {name for name, action in named.items() if action == "delete"}
    left = [f"{c}/m{one}{end}" for one in ours - kept for c, end in (("topics", ""), ("subscriptions", "-sub"))]
    assert gone == set(left)


def test_what_somebody_has_made_his_own_since_the_plan_is_not_pruned(here: Project, broker_url: str) -> None:
    here.plan({"topics": {"one": {}, "two": {}}})
    with Api(broker_url) as api:
        state = read_state(api, here.name)
        plan = make_plan(Declared(), state, here.name, owner="broker", prune=True, policy_of=lambda _: {})
        mine = {"topic": {"name": f"{here.name}/topics/one"}, "updateMask": "labels"}
        assert here.client.patch(f"/v1/{here.name}/topics/one", json=mine).status_code == 200
        for step in plan:
            carry_out(api, step, "broker")
    assert here.names() == {f"{here.name}/topics/one"}


def _problems(here: Project, declared: Json, *options: str) -> dict[str, str]:
    """What a dry run says against a plan; an apply says the same, and does nothing."""
    done = here.apply(declared, "--json", "--dry-run", *options)
    assert done.code == 1, done.text
    planned = json.loads(done.text)
    names = here.names()
    applied = here.apply(declared, "--json", *options)
    assert (applied.code, json.loads(applied.text), here.names()) == (1, planned, names)
    return {one["name"].removeprefix(f"{here.name}/"): one["problem"] for one in planned if "problem" in one}


def test_a_plan_names_a_schema_that_the_server_refuses(here: Project) -> None:
    def schema(*names: str) -> Json:
        fields = [{"name": name, "type": "string"} for name in names]
        definition = json.dumps({"type": "record", "name": "Order", "fields": fields})
        return {"schemas": {"order": {"type": "AVRO", "definition": definition}}, "topics": {"more": {}}}

    here.plan(schema("id"))
    found = _problems(here, schema("id", "customer"))
    assert list(found) == ["schemas/order"]
    assert "customer" in found["schemas/order"], found
    broken = {"schemas": {"new": {"type": "AVRO", "definition": "{"}}}
    assert list(_problems(here, broken)) == ["schemas/new"]


def test_a_plan_names_a_changed_filter_that_the_server_refuses(here: Project, broker_url: str) -> None:
    declared: Json = {"topics": {"orders": {}}, "subscriptions": {"billing": {"topic": "orders", "filter": ""}}}
    billing = declared["subscriptions"]["billing"]
    billing["ackDeadlineSeconds"] = 20
    here.plan(declared)
    billing |= {"filter": "attributes.env = ", "ackDeadlineSeconds": 30}
    found = _problems(here, declared)
    assert list(found) == ["subscriptions/billing"]
    assert "filter" in found["subscriptions/billing"], found
    assert here.get("subscriptions/billing")["ackDeadlineSeconds"] == 20
    httpx.post(f"{broker_url}/v1/{here.name}/subscriptions/billing:detach", verify=NO_TLS).raise_for_status()
    billing["filter"] = "attributes:env"
    assert "Subscription is detached" in _problems(here, declared)["subscriptions/billing"]


def test_a_plan_names_the_filter_of_a_new_subscription_that_the_server_refuses(here: Project) -> None:
    here.plan({"topics": {"orders": {}}})
    wanted = {
        "billing": {"topic": "orders", "filter": "attributes.env = "},
        "audit": {"topic": "orders", "filter": "attributes:env"},
    }
    assert list(_problems(here, {"subscriptions": wanted})) == ["subscriptions/billing"]


def test_a_plan_names_references_to_what_does_not_exist(here: Project) -> None:
    declared: Json = {
        "topics": {"orders": {"schemaSettings": {"schema": "none", "encoding": "JSON"}}},
        "subscriptions": {
            "billing": {"topic": "gone"},
            "audit": {"topic": "orders", "deadLetterPolicy": {"deadLetterTopic": "lost"}},
        },
        "schedules": {"nightly": {"topic": "gone", "interval": "1h", "message": {"text": "tick"}}},
    }
    end = ", which does not exist: declare it, or create it first"
    assert _problems(here, declared) == {
        "topics/orders": f"schemaSettings.schema names the schema none{end}",
        "subscriptions/billing": f"topic names the topic gone{end}",
        "subscriptions/audit": f"deadLetterPolicy.deadLetterTopic names the topic lost{end}",
        "schedules/nightly": f"topic names the topic gone{end}",
    }


def test_a_plan_names_what_a_prune_would_break(here: Project) -> None:
    schedule = {"topic": "orders", "interval": "1h", "message": {"text": "tick"}}
    here.plan({"topics": {"orders": {}, "kept": {}}, "schedules": {"nightly": schedule}})
    found = _problems(here, {"topics": {"kept": {}}}, "--prune")
    assert list(found) == ["topics/orders"]
    assert found["topics/orders"].startswith("the schedule nightly publishes to it: declare the topic, or ")
    moved = {"topics": {"kept": {}}, "schedules": {"nightly": schedule | {"topic": "kept"}}}
    late = moved | {"subscriptions": {"billing": {"topic": "orders"}}}
    assert list(_problems(here, late, "--prune")) == ["subscriptions/billing"]
    assert here.actions(moved, "--prune") == {"schedules/nightly": "update", "topics/orders": "delete"}


def test_what_is_done_is_said_once(here: Project) -> None:
    declared: Json = {"topics": {"orders": {"messageRetentionDuration": "7d"}}}
    assert here.apply(declared, "--dry-run").text.splitlines() == [
        "+ topic orders",
        "    messageRetentionDuration: 7d",
        "1 to create, 0 to update, 0 to delete, 0 as they are.",
    ]
    assert here.apply(declared, "--yes").text.splitlines() == [
        "+ created topic orders",
        "1 created, 0 updated, 0 deleted, 0 as they are.",
    ]


def test_an_export_is_as_people_write_it(here: Project) -> None:
    declared: Json = {
        "topics": {"orders": {"messageRetentionDuration": "36h"}},
        "subscriptions": {"billing": {"topic": "orders", "retryPolicy": {"maximumBackoff": "90s"}}},
        "schedules": {
            "nightly": {"topic": "orders", "interval": "1h", "message": {"text": "Guten Tag\nüberall"}},
            "binary": {"topic": "orders", "interval": "1h", "message": {"data": "/w=="}},
        },
    }
    here.plan(declared)
    exported = yaml.safe_load(here.export())
    assert exported["topics"]["orders"]["messageRetentionDuration"] == "1d12h"
    assert exported["subscriptions"]["billing"]["retryPolicy"] == {"maximumBackoff": "1m30s"}
    assert exported["schedules"]["nightly"]["message"] == {"text": "Guten Tag\nüberall"}
    assert exported["schedules"]["binary"]["message"] == {"data": "/w=="}
    assert here.actions(exported) == {}
