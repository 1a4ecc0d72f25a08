"""Update masks that reach into a resource's messages (A12); whole fields are with the resources' other tests."""

import base64
import re
from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest

ENDPOINT = "http://127.0.0.1:9/push"
TOKEN = {"serviceAccountEmail": "a@b.example", "audience": "who"}
PUSH = {"pushEndpoint": ENDPOINT, "attributes": {"x-goog-version": "v1"}, "oidcToken": TOKEN}
EXPORT = {"table": "p.d.t", "writeMetadata": True, "useTopicSchema": True}
KINESIS = {"streamArn": "a", "consumerArn": "b", "awsRoleArn": "c"}


def _camel(path: str) -> str:
    return re.sub("_([a-z])", lambda dead_letter: dead_letter[1].upper(), path)


# What there is, the mask, what is given, and what comes of it; all of it in the mask's first field.
CHANGES: list[tuple[str, Json, str, Json, Json]] = [
    ("subscription", PUSH | {"noWrapper": {"writeMetadata": True}}, "pushConfig.noWrapper", {}, PUSH),
    ("subscription", PUSH, "pushConfig.noWrapper", {"noWrapper": {}}, PUSH | {"noWrapper": {}}),
    (
        "subscription",
        PUSH | {"pubsubWrapper": {}},
        "pushConfig.noWrapper",
        {"noWrapper": {}},
        PUSH | {"noWrapper": {}},
    ),
    (
        "subscription",
        PUSH | {"noWrapper": {}},
        "pushConfig.noWrapper.writeMetadata",
        {"noWrapper": {"writeMetadata": True}},
        PUSH | {"noWrapper": {"writeMetadata": True}},
    ),
    (
        "subscription",
        PUSH,
        "pushConfig.pushEndpoint",
        {"pushEndpoint": f"{ENDPOINT}/other", "noWrapper": {}},
        PUSH | {"pushEndpoint": f"{ENDPOINT}/other"},
    ),
    (
        "subscription",
        PUSH,
        "pushConfig.oidcToken.audience",
        {},
        PUSH | {"oidcToken": {"serviceAccountEmail": "a@b.example"}},
    ),
    (
        "subscription",
        PUSH,
        "pushConfig.attributes",
        {"attributes": {"new": "a"}},
        PUSH | {"attributes": {"new": "a"}},
    ),
    ("subscription", {"ttl": "2678400s"}, "expirationPolicy.ttl", {"ttl": "864000s"}, {"ttl": "864000s"}),
    ("subscription", {"ttl": "2678400s"}, "expirationPolicy.ttl", {}, {}),
    ("subscription", {}, "expirationPolicy.ttl", {"ttl": "864000s"}, {"ttl": "864000s"}),
    (
        "subscription",
        {"minimumBackoff": "20s", "maximumBackoff": "30s"},
        "retryPolicy.minimumBackoff",
        {"minimumBackoff": "5s", "maximumBackoff": "6s"},
        {"minimumBackoff": "5s", "maximumBackoff": "30s"},
    ),
    (
        "subscription",
        {"minimumBackoff": "20s", "maximumBackoff": "30s"},
        "retryPolicy.maximumBackoff",
        {},
        {"minimumBackoff": "20s", "maximumBackoff": "600s"},
    ),
    ("subscription", EXPORT, "bigqueryConfig.writeMetadata", {}, {"table": "p.d.t", "useTopicSchema": True}),
    (
        "topic",
        {"awsKinesis": KINESIS, "platformLogsSettings": {"severity": "WARNING"}},
        "ingestionDataSourceSettings.awsKinesis.streamArn",
        {"awsKinesis": {"streamArn": "new"}},
        {"awsKinesis": KINESIS | {"streamArn": "new"}, "platformLogsSettings": {"severity": "WARNING"}},
    ),
    (
        "topic",
        {"allowedPersistenceRegions": ["europe-west1"], "enforceInTransit": True},
        "messageStoragePolicy.allowedPersistenceRegions",
        {"allowedPersistenceRegions": ["us-east1", "us-east4"]},
        {"allowedPersistenceRegions": ["us-east1", "us-east4"], "enforceInTransit": True},
    ),
]


@pytest.mark.parametrize(
    ("resource", "before", "mask", "given", "after"), CHANGES, ids=lambda value: str(value)[:40]
)
async def test_a_path_into_a_field_changes_that_part_alone(
    rest: Rest, resource: str, before: Json, mask: str, given: Json, after: Json
) -> None:
    """gcloud's --clear-push-no-wrapper-config and others' "expiration_policy.ttl" are such masks."""
    field = mask.partition(".")[0]
    is_topic = resource == "topic"
    await rest.create_topic(labels={"kept": "yes"}, **({field: before} if is_topic else {}))
    name = rest.topic()
    if not is_topic:
        await rest.create_subscription(labels={"kept": "yes"}, **{field: before})
        name = rest.subscription()
    found = await rest.ok("GET", name)
    body = {resource: {field: given} if given else {}, "updateMask": mask}
    assert await rest.ok("PATCH", name, body) == found | {field: after}
    assert await rest.ok("GET", name) == found | {field: after}


async def test_a_dead_letter_policy_is_changed_in_part(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("dead")
    policy: Json = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 7}
    await rest.create_subscription(deadLetterPolicy=policy)
    body: Json = {"subscription": {}, "updateMask": "deadLetterPolicy.maxDeliveryAttempts"}
    changed = await rest.ok("PATCH", rest.subscription(), body)
    assert changed["deadLetterPolicy"] == policy | {"maxDeliveryAttempts": 5}
    body = {"subscription": {}, "updateMask": "deadLetterPolicy.deadLetterTopic"}
    assert (await rest.error("PATCH", rest.subscription(), body))[0] == "INVALID_ARGUMENT"
    assert await rest.ok("GET", rest.subscription()) == changed


async def test_what_a_part_may_be_depends_on_the_rest(rest: Rest) -> None:
    await rest.create_topic()
    plain = await rest.create_subscription()
    for config, mask in (
        ({"pushConfig": {"noWrapper": {}}}, "pushConfig.noWrapper"),  # it has no endpoint
        ({"retryPolicy": {"minimumBackoff": "601s"}}, "retryPolicy.minimumBackoff"),
        ({"expirationPolicy": {"ttl": "604799s"}}, "expirationPolicy.ttl"),  # less than its messages are retained
    ):
        code, _ = await rest.error("PATCH", rest.subscription(), {"subscription": config, "updateMask": mask})
        assert code == "INVALID_ARGUMENT"
    assert await rest.ok("GET", rest.subscription()) == plain


REFUSED: list[tuple[str, str, str]] = [
    (
        "subscription",
        "push_config.bogus",
        "'push_config' has: attributes, no_wrapper, oidc_token, pubsub_wrapper, push_endpoint.",
    ),
    ("subscription", "push_config.no_wrapper.bogus", "'push_config.no_wrapper' has: write_metadata."),
    ("subscription", "push_config.pubsub_wrapper.bogus", "'push_config.pubsub_wrapper' has: no fields."),
    ("subscription", "expiration_policy.ttl.seconds", "'expiration_policy.ttl' can only be named as a whole."),
    ("subscription", "labels.team", "'labels' can only be named as a whole."),
    ("subscription", "message_transforms.disabled", "'message_transforms' can only be named as a whole."),
    ("subscription", "push_config.", "'push_config' has: "),
    ("subscription", "bogus.ttl", "is not a known Subscription field."),
    (
        "subscription",
        "bigquery_config.state",
        "the 'bigquery_config.state' field in the Subscription is not mutable.",
    ),
    ("subscription", "analytics_hub_subscription_info.listing", "is not mutable."),
    (
        "topic",
        "schema_settings.bogus",
        "'schema_settings' has: encoding, first_revision_id, last_revision_id, schema.",
    ),
    ("topic", "kms_key_name.x", "'kms_key_name' can only be named as a whole."),
]


@pytest.mark.parametrize(("resource", "path", "expected"), REFUSED)
async def test_a_path_that_leads_nowhere_is_refused_and_says_what_there_is(
    rest: Rest, resource: str, path: str, expected: str
) -> None:
    await rest.create_topic()
    plain: Any = await rest.create_subscription()
    name = rest.topic() if resource == "topic" else rest.subscription()
    body = {resource: {"labels": {"a": "b"}}, "updateMask": f"labels,{_camel(path)}"}
    code, message = await rest.error("PATCH", name, body)
    assert (code, f"'{path}'" in message, expected in message) == ("INVALID_ARGUMENT", True, True), message
    assert await rest.ok("GET", rest.subscription()) == plain, "nothing is changed"


async def test_a_path_may_be_in_snake_case_and_in_the_query(rest: Rest) -> None:
    await rest.create_topic()
    found = await rest.create_subscription()
    body: Json = {"subscription": {"expiration_policy": {"ttl": "864000s"}}, "updateMask": "expiration_policy.ttl"}
    changed = await rest.ok("PATCH", rest.subscription(), body)
    assert changed == found | {"expirationPolicy": {"ttl": "864000s"}}
    query = "updateMask=labels,expirationPolicy.ttl"
    assert await rest.ok("PATCH", f"{rest.subscription()}?{query}", {"subscription": {}}) == found | {
        "expirationPolicy": {}
    }
    put = await rest.ok("PUT", f"{rest.subscription()}?{query}", {"expirationPolicy": {"ttl": "864000s"}})
    assert put == changed


@pytest.mark.parametrize("resource", ["topic", "subscription", "snapshot"])
async def test_an_update_without_a_mask_of_what_does_not_exist_is_not_found(rest: Rest, resource: str) -> None:
    name = f"{rest.project}/{resource}s/none-such"
    assert (await rest.error("PATCH", name, {resource: {"name": name}}))[0] == "NOT_FOUND"
    await rest.create_topic()
    await rest.create_subscription()
    await rest.ok("PUT", f"{rest.project}/snapshots/snap", {"subscription": rest.subscription()})
    names = {
        "topic": rest.topic(),
        "subscription": rest.subscription(),
        "snapshot": f"{rest.project}/snapshots/snap",
    }
    code, said = await rest.error("PATCH", names[resource], {resource: {"name": names[resource]}})
    assert (code, "update_mask" in said) == ("INVALID_ARGUMENT", True)


async def test_extensions_are_named_as_a_whole(rest: Rest) -> None:
    """They are not Google's."""
    await rest.create_topic()
    await rest.create_subscription()
    for path, why in (
        ("push.digest", "'extensions.push' can only be named as a whole."),
        ("colour", "'extensions' has: alerts, dead_letter_expired, journal, one_per_ordering_key, push."),
    ):
        body: Json = {"subscription": {"extensions": {"push": {}}}, "updateMask": f"extensions.{path}"}
        code, message = await rest.error("PATCH", rest.subscription(), body)
        assert code == "INVALID_ARGUMENT"
        assert message.endswith(why)


async def test_one_extension_is_changed_by_its_name_and_the_others_stay(rest: Rest) -> None:
    """They are not Google's.  Secrets, which no answer has, stay as well."""
    await rest.create_topic()
    secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    journal = {"mode": "ALL", "sample": 1.0, "retention": "604800s"}
    had = {"journal": journal, "onePerOrderingKey": True, "push": {"webhookSecrets": [secret]}}
    made = (await rest.create_subscription(extensions=had))["extensions"]
    more = made | {"deadLetterExpired": True}
    once = {name: value for name, value in more.items() if name != "onePerOrderingKey"}
    changes: list[tuple[str, Json, Json]] = [
        ("extensions.deadLetterExpired,labels", {"deadLetterExpired": True}, more),
        ("extensions.one_per_ordering_key", {}, once),
        ("extensions.alerts", {"alerts": {"backlog": 5}, "push": {}}, {**once, "alerts": {"backlog": 5}}),
        ("extensions.journal,extensions.push", {}, {"deadLetterExpired": True, "alerts": {"backlog": 5}}),
    ]
    for mask, wanted, expected in changes:
        change = {"subscription": {"extensions": wanted}, "updateMask": mask}
        found = (await rest.ok("PATCH", rest.subscription(), change))["extensions"]
        if "push" in mask:  # secrets stay, as they do with "extensions"
            expected["push"] = made["push"]
        assert found == expected


async def test_what_is_cleared_has_the_default_of_what_the_resource_then_is(rest: Rest) -> None:
    """As at creation: the ack deadline goes by exactly-once delivery, the retention by the expiration policy."""
    await rest.create_topic()
    options: Json = {"enableExactlyOnceDelivery": True, "expirationPolicy": {"ttl": "86400s"}}
    created = await rest.create_subscription(**options)
    assert (created["ackDeadlineSeconds"], created["messageRetentionDuration"]) == (60, "86400s")
    given = {"ackDeadlineSeconds": 20, "messageRetentionDuration": "600s"}
    mask = "ackDeadlineSeconds,messageRetentionDuration"
    await rest.ok("PATCH", rest.subscription(), {"subscription": given, "updateMask": mask})
    cleared = await rest.ok("PATCH", rest.subscription(), {"subscription": {}, "updateMask": mask})
    assert cleared == created
