"""The format of declarations as a JSON Schema, for editors and for the error messages of `apply`."""

from dataclasses import MISSING
from datetime import timedelta
from enum import Enum
from typing import Any

from broker.model.api_json import Field, fields_of, has_fields
from broker.model.subscription import Extensions
from broker.model.topic_extensions import TopicExtensions

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_YES_NO: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_ANY: Schema = {"type": "object"}
_DURATION: Schema = {"type": ["string", "integer"], "description": 'Such as "30s", "10m", "7d".'}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}


def _fields(description: str = "", required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    schema |= {"description": description} if description else {}
    return schema | ({"required": list(required)} if required else {})


def _said(schema: Schema, description: str) -> Schema:
    return schema | {"description": description}


def _policy() -> Schema:
    members = {"type": "array", "items": _TEXT}
    binding = _fields("", ("role", "members"), role=_TEXT, members=members, condition=_ANY)
    return _fields(
        "Who has which roles; replaces what there is. Without it, policies are left alone.",
        bindings={"type": "array", "items": binding},
    )


# Descriptions of extension fields, by their paths.
ABOUT = {
    "extensions.delay": "Publishers may have messages delivered later.",
    "extensions.shards": "Logs of the topic, from 1 to 256; there may be more later, but not fewer.",
    "extensions.deduplication": "Repeats of messages are not stored.",
    "extensions.expiry": "Publishers may say for how long messages are delivered.",
    "extensions.priorities": "Levels of urgency: what is more urgent goes first.",
    "extensions.deadLetterExpired": "What is past its time goes to the dead-letter topic.",
    "extensions.push": "How pushes are sent.",
    "extensions.push.urgent": "It goes before the other subscriptions of its project.",
    "extensions.push.webhookSecrets": "Without them, those that there are stay.",
    "extensions.push.webhookSecretFingerprints": "Of `broker export`; not looked at.",
}
_JSON_TYPES: dict[Any, Schema] = {
    bool: _YES_NO,
    int: _NUMBER,
    float: {"type": "number"},
    str: _TEXT,
    timedelta: _DURATION,
}


def _declared(kind: Any, path: str) -> Schema:
    """Returns the schema of a dataclass, with descriptions of its fields."""
    declared = fields_of(kind).values()
    required = tuple(field.json_name for field in declared if field.default is MISSING)
    properties = {field.json_name: _field(field, f"{path}.{field.json_name}") for field in declared}
    return _fields("", required, **properties)


def _field(field: Field, path: str) -> Schema:
    kind = field.type
    if kind is tuple:
        schema: Schema = {"type": "array", "items": _JSON_TYPES[field.item]}
    elif has_fields(kind):
        schema = _declared(kind, path)
        if alone := getattr(kind, "ALONE", ""):
            schema = {"anyOf": [_JSON_TYPES[fields_of(kind)[alone].type], schema]}
    elif issubclass(kind, Enum):
        schema = {"enum": [each.value for each in kind]}
    else:
        schema = _JSON_TYPES[kind]
    return _said(schema, ABOUT[path]) if path in ABOUT else schema


def _push_config() -> Schema:
    return _fields(
        "Push messages there, rather than have them pulled.",
        pushEndpoint=_TEXT,
        attributes=_TEXTS,
        oidcToken=_fields("", serviceAccountEmail=_TEXT, audience=_TEXT),
        pubsubWrapper=_fields(),
        noWrapper=_fields("", writeMetadata=_YES_NO),
    )


def topic_schema() -> Schema:
    return _fields(
        "",
        labels=_TEXTS,
        messageRetentionDuration=_said(_DURATION, "Keep messages so long, acknowledged or not."),
        schemaSettings=_fields(
            "",
            ("schema",),
            schema=_TEXT,
            encoding={"enum": ["JSON", "BINARY"]},
            firstRevisionId=_TEXT,
            lastRevisionId=_TEXT,
        ),
        messageTransforms={"type": "array", "items": _ANY},
        extensions=_declared(TopicExtensions, "extensions"),
        messageStoragePolicy=_ANY,
        kmsKeyName=_TEXT,
        ingestionDataSourceSettings=_ANY,
        policy=_policy(),
    )


def subscription_schema() -> Schema:
    return _fields(
        "",
        ("topic",),
        topic=_said(_TEXT, "Whose messages it gets; cannot be changed."),
        filter=_said(_TEXT, "Only messages that it matches; cannot be changed."),
        enableMessageOrdering=_said(_YES_NO, "Cannot be changed."),
        labels=_TEXTS,
        ackDeadlineSeconds=_NUMBER,
        retainAckedMessages=_YES_NO,
        messageRetentionDuration=_DURATION,
        expirationPolicy=_fields("Delete it when nobody uses it so long; {}: never.", ttl=_DURATION),
        enableExactlyOnceDelivery=_YES_NO,
        deadLetterPolicy=_fields("", ("deadLetterTopic",), deadLetterTopic=_TEXT, maxDeliveryAttempts=_NUMBER),
        retryPolicy=_fields("", minimumBackoff=_DURATION, maximumBackoff=_DURATION),
        pushConfig=_push_config(),
        messageTransforms={"type": "array", "items": _ANY},
        bigqueryConfig=_ANY,
        cloudStorageConfig=_ANY,
        bigtableConfig=_ANY,
        extensions=_said(_declared(Extensions, "extensions"), "What Google's subscriptions do not have."),
        policy=_policy(),
    )


def schema_schema() -> Schema:
    """Returns the JSON Schema of a schema of messages."""
    return _fields(
        "",
        ("type",),
        type=_said({"enum": ["AVRO", "PROTOCOL_BUFFER", "JSON"]}, "Cannot be changed."),
        definition=_said(_TEXT, "Another one is committed as a revision."),
        compiledProtoSchema=_fields("", compiledBytes=_TEXT, rootMessage=_TEXT),
        compatibility=_TEXT,
        policy=_policy(),
    )


def schedule_schema() -> Schema:
    message = _fields(
        "What is published.",
        data=_said(_TEXT, "In base64."),
        text=_said(_TEXT, "In place of data."),
        attributes=_TEXTS,
        orderingKey=_TEXT,
    )
    return _fields(
        "",
        ("topic",),
        topic=_said(_TEXT, "Where it publishes."),
        message=message,
        template=_said(message, "In place of message: {{time}}, {{schedule}} and {{tick}} are replaced."),
        schedule=_said(_TEXT, "Cron: five fields, or six with the seconds first."),
        interval=_said(_DURATION, "In place of schedule."),
        timeZone=_said(_TEXT, "Of schedule, such as Europe/Berlin; UTC otherwise."),
        start=_said(_TEXT, "No tick is before it."),
        end=_said(_TEXT, "No tick is after it."),
        missed=_said({"enum": ["SKIP", "ONE", "ALL"]}, "Of ticks while no broker ran."),
    )


def json_schema() -> Schema:
    """Returns the JSON Schema of a whole file."""

    def by_name(of_one: Schema, description: str) -> Schema:
        one = of_one if "required" in of_one else of_one | {"type": ["object", "null"]}
        return {"type": ["object", "null"], "description": description, "additionalProperties": one}

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What `broker apply` makes so",
        **_fields(
            "",
            schemas=by_name(schema_schema(), "Schemas of messages, by id."),
            topics=by_name(topic_schema(), "Topics, by id."),
            subscriptions=by_name(subscription_schema(), "Subscriptions, by id."),
            schedules=by_name(schedule_schema(), "What is published again and again, by id."),
            policy=_said(_policy(), "Who has which roles on the project."),
        ),
    }
