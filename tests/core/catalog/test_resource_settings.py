"""Topics and subscriptions are the same after they were stored, whatever their fields are."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, replace
from datetime import timedelta
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.api.generated import messages
from broker.api.rest.codec.protobuf_json import fill
from broker.api.rest.resource_handler import answer_json
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.resources.subscription_calls import subscription_answer, subscription_from, subscription_message
from broker.core.resources.subscription_extensions import decode_extensions
from broker.core.resources.topic_calls import topic_answer, topic_from, topic_message
from broker.model.api_json import Field, fields_of, has_fields
from broker.model.durations import Duration, format_duration
from broker.model.push_config import PushOptions, SealedSecret
from broker.model.schema_settings import SchemaSettings
from broker.model.subscription import Extensions, Subscription
from broker.model.topic import Topic
from broker.model.topic_extensions import TopicExtensions
from broker.model.transforms import JavascriptUdf, Transform
from tests.fixtures.log import Log

# --- every field ------------------------------------------------------------------------------------------------

# Fields that say what the database knows by itself, or that calls of their own write.
DERIVED: dict[Any, set[str]] = {
    Topic: {"topic_id", "name", "shard_ids", "freeze", "key_shards", "levels"},
    Subscription: {
        *("subscription_id", "name", "topic", "topic_id", "shard_ids", "levels", "priorities", "created_at"),
        *("topic_message_retention", "earlier_filters", "newest_filter", "filter_changed_at", "detached", "pause"),
        *("dead_letter_topic_id", "dead_letters_unread"),
    },
    TopicExtensions: {"shards"},
    PushOptions: {"webhook_secret_fingerprints"},
}
_SPECIAL: dict[tuple[Any, str], Any] = {
    (Topic, "kept"): {"kmsKeyName": "k"},
    (Topic, "schema_settings"): SchemaSettings(
        schema="_deleted-schema_", encoding="BINARY", first_revision_id="a", last_revision_id="b", schema_id=7
    ),
    (Topic, "transforms"): (Transform(javascript_udf=JavascriptUdf("f", "function f() {}"), disabled=True),),
    (Subscription, "kept"): {"bigqueryConfig": {"table": "t"}},
    (Subscription, "transforms"): (Transform(javascript_udf=JavascriptUdf("f", "function f() {}"), disabled=True),),
    (Subscription, "filter_path"): '($."a" == "b")',
    (Subscription, "body_path"): '($."a" == "c")',
}


def other_than_default(kind: Any, field: Field) -> Any:
    """A value of a field, found by its type, that is not the default."""
    if (kind, field.name) in _SPECIAL:
        return _SPECIAL[kind, field.name]
    if has_fields(field.type):
        return filled(field.type)
    if issubclass(field.type, timedelta):
        return Duration(microseconds=3_600_000_001, nanoseconds=7 if field.is_exact else 0)
    if issubclass(field.type, Enum):
        return list(field.type)[-1]
    if field.type is bool:
        return not field.default
    examples: dict[Any, Any] = {int: 7, float: 0.5, str: "some", tuple: (field.item and field.item(3),)}
    return examples.get(field.type, {"some": "text"})


def filled(kind: Any) -> Any:
    """A value of which no field that is stored has its default."""
    declared = [field for field in fields_of(kind).values() if field.name not in DERIVED.get(kind, ())]
    values = {field.name: other_than_default(kind, field) for field in declared}
    required = {name: "n" for name in ("name", "topic") if name in DERIVED.get(kind, ()) & fields_of(kind).keys()}
    for field in declared:
        assert values[field.name] != field.default
    return kind(**required, **values)


async def test_every_field_of_a_topic_is_stored_or_known_to_be_derived(log: Log) -> None:
    wanted = replace(filled(Topic), topic_id=log.topic.topic_id)
    async with log.database.transaction() as connection:
        await topics.update_topic(connection, topic=wanted)
        found = await topics.find_topic(connection, name=log.topic.name)
    assert found == replace(wanted, **{name: getattr(found, name) for name in DERIVED[Topic]})


async def test_every_field_of_a_subscription_is_stored_or_known_to_be_derived(log: Log) -> None:
    wanted = replace(filled(Subscription), name="projects/p/subscriptions/filled", topic=log.topic.name)
    async with log.database.transaction() as connection:
        found = await subscriptions.insert_subscription(
            connection, subscription=wanted, topic_id=log.topic.topic_id, now=log.start
        )
    assert found == replace(wanted, **{name: getattr(found, name) for name in DERIVED[Subscription]})


async def test_a_secret_that_is_encrypted_keeps_its_fingerprint(log: Log) -> None:
    secrets = ("whsec_clear", SealedSecret.of("enc1:k:sealed", "0123abcd"))
    wanted = replace(log.subscription, extensions=Extensions(push=PushOptions(webhook_secrets=secrets)))
    async with log.database.transaction() as connection:
        await subscriptions.update_subscription(connection, subscription=wanted, now=log.start)
        found = await subscriptions.find_subscription(connection, name=wanted.name)
    assert found is not None
    assert found.extensions == wanted.extensions
    assert [getattr(each, "fingerprint", "") for each in found.extensions.push.webhook_secrets or ()] == [
        "",
        "0123abcd",
    ]


# --- any resource -----------------------------------------------------------------------------------------------

_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
_durations = st.integers(1_000_000, 86_400_000_000).map(lambda n: format_duration(timedelta(microseconds=n)))
_exact_durations = st.integers(10**9, 86_400 * 10**9).map(
    lambda n: format_duration(Duration(microseconds=n // 1000, nanoseconds=n % 1000))
)
_labels = st.dictionaries(_texts, _texts, max_size=3)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(1, 2**31 - 1),
    float: st.floats(0.001, 1e6),
    str: _texts,
    timedelta: _durations,
}


def bodies(kind: Any) -> st.SearchStrategy[Any]:
    """JSON that is read as a dataclass, whatever it declares."""
    declared = [field for field in fields_of(kind).values() if field.name not in DERIVED.get(kind, ())]
    required = {field.json_name: _values(field) for field in declared if field.default is MISSING}
    optional = {field.json_name: _values(field) for field in declared if field.default is not MISSING}
    found = st.fixed_dictionaries(required, optional=optional)
    return found | required[getattr(kind, "ALONE")] if hasattr(kind, "ALONE") else found  # noqa: B009


def _values(field: Field) -> st.SearchStrategy[Any]:
    if has_fields(field.type):
        return bodies(field.type)
    if issubclass(field.type, Enum):
        return st.sampled_from([each.value for each in field.type])
    if field.type is tuple:
        return st.lists(_BY_TYPE[field.item], max_size=3)
    return _BY_TYPE[field.type]


_topics = st.fixed_dictionaries(
    {},
    optional={
        "labels": _labels,
        "messageRetentionDuration": _exact_durations,
        "kmsKeyName": _texts,
        "messageStoragePolicy": st.just({"allowedPersistenceRegions": ["eu", "us"]}),
        "messageTransforms": st.lists(
            st.fixed_dictionaries({"fields": st.just({"set": {"attributes.b": "1", "attributes.a": "2"}})}),
            max_size=2,
        ),
        "extensions": bodies(TopicExtensions),
    },
)
_subscriptions = st.fixed_dictionaries(
    {},
    optional={
        "labels": _labels,
        "ackDeadlineSeconds": st.integers(1, 600),
        "retainAckedMessages": st.booleans(),
        "messageRetentionDuration": _exact_durations,
        "expirationPolicy": st.fixed_dictionaries({}, optional={"ttl": _exact_durations}),
        "enableExactlyOnceDelivery": st.booleans(),
        "deadLetterPolicy": st.fixed_dictionaries(
            {"deadLetterTopic": _texts}, optional={"maxDeliveryAttempts": st.integers(1, 100)}
        ),
        "retryPolicy": st.fixed_dictionaries(
            {}, optional={"minimumBackoff": _exact_durations, "maximumBackoff": _exact_durations}
        ),
        "pushConfig": st.fixed_dictionaries(
            {"pushEndpoint": _texts},
            optional={
                "attributes": _labels,
                "oidcToken": st.fixed_dictionaries({"serviceAccountEmail": _texts}, optional={"audience": _texts}),
            },
        ).flatmap(
            lambda config: st.sampled_from(
                [{}, {"pubsubWrapper": {}}, {"noWrapper": {}}, {"noWrapper": {"writeMetadata": True}}]
            ).map(config.__or__)
        ),
        "bigqueryConfig": st.fixed_dictionaries({"table": _texts}, optional={"useTopicSchema": st.booleans()}),
        "extensions": bodies(Extensions),
    },
)
_slowly = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def shown(resource: Topic | Subscription) -> Any:
    """What REST answers."""
    answer = topic_answer(resource) if isinstance(resource, Topic) else subscription_answer(resource)
    return json.loads(answer_json(answer))


def topic_of(body: Mapping[str, Any], log: Log) -> Topic:
    message = messages.Topic()
    fill(message, body)
    shards = TopicExtensions(shards=log.topic.extensions.shards).shards
    wanted = topic_from(message)
    extensions = replace(wanted.extensions, shards=shards)
    return replace(wanted, name=log.topic.name, topic_id=log.topic.topic_id, extensions=extensions)


def subscription_of(body: Mapping[str, Any], log: Log) -> Subscription:
    message = messages.Subscription()
    wanted = subscription_from(message, extensions=decode_extensions(fill(message, body)))
    held = log.subscription
    return replace(wanted, name=held.name, topic=held.topic, subscription_id=held.subscription_id)


@given(_topics)
@_slowly
async def test_a_topic_is_answered_after_it_was_stored_as_before(log: Log, body: Any) -> None:
    wanted = topic_of(body, log)
    async with log.database.transaction() as connection:
        await topics.update_topic(connection, topic=wanted)
        found = await topics.find_topic(connection, name=wanted.name)
    assert found is not None
    assert shown(found) == shown(wanted)
    assert shown(topic_of(without_output(shown(found)), log)) == shown(found)
    over_grpc = messages.Topic.FromString(topic_message(found).SerializeToString())
    assert shown(topic_from(over_grpc)) == shown(found)


@given(_subscriptions)
@_slowly
async def test_a_subscription_is_answered_after_it_was_stored_as_before(log: Log, body: Any) -> None:
    wanted = subscription_of(body, log)
    async with log.database.transaction() as connection:
        await subscriptions.update_subscription(connection, subscription=wanted, now=log.start)
        found = await subscriptions.find_subscription(connection, name=wanted.name)
    assert found is not None
    assert shown(found) == shown(wanted)
    assert found.extensions.push.webhook_secrets == (wanted.extensions.push.webhook_secrets or None)
    again = subscription_of(without_output(shown(found)), log)
    again = replace(again, extensions=found.extensions.replaced_by(again.extensions))
    assert shown(again) == shown(found)
    over_grpc = subscription_message(found)
    assert subscription_message(subscription_from(type(over_grpc).FromString(over_grpc.SerializeToString()))) == (
        over_grpc
    )


def without_output(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in body.items() if name not in ("state", "detached")}


@pytest.mark.parametrize("kind", [TopicExtensions, Extensions])
def test_the_bodies_of_these_tests_have_every_extension(kind: Any) -> None:
    every = {field.json_name for field in fields_of(kind).values() if field.name not in DERIVED.get(kind, ())}
    found = set[str]()

    @given(bodies(kind))
    @settings(database=None)
    def collect(body: Any) -> None:
        found.update(body)
        msgspec.json.encode(body)

    collect()
    assert found == every
