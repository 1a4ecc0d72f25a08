"""The normal form in which declarations are compared: without server defaults, and with full names.

The state of a project and the content of a file are brought into this form; then they are equal, or need a change.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import MISSING
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from broker.client.api import Json
from broker.client.stop import Misuse
from broker.client.words import duration_text
from broker.model.api_json import fields_of, has_fields, to_json
from broker.model.durations import format_units, parse_duration
from broker.model.errors import InvalidArgument
from broker.model.subscription import Extensions
from broker.model.topic_extensions import TopicExtensions

MARK = "applied-by"  # the label of what `apply` has made; its value says in whose name
SECRETS, FINGERPRINTS = "webhookSecrets", "webhookSecretFingerprints"

# What only a server says; a field called "state" is one wherever it is.
_OUTPUT_ONLY = {
    "topics": {"name", "satisfiesPzs", "frozen", "stats"},
    "subscriptions": {
        "name",
        "detached",
        "pause",
        "topicMessageRetentionDuration",
        "analyticsHubSubscriptionInfo",
    },
    "schemas": {"name", "revisionId", "revisionCreateTime"},
    "schedules": {
        "name",
        "ticks",
        "nextTime",
        "createTime",
        "updateTime",
        "lastOutcome",
        "createdBy",
        "pauseTime",
        "pausedBy",
    },
}
# What is so if nobody says otherwise, by the path of the field; servers print it, or do not.
_DEFAULTS: dict[str, Any] = {
    "messageRetentionDuration": "604800s",
    "expirationPolicy": {"ttl": "2678400s"},
    "retryPolicy.minimumBackoff": "10s",
    "retryPolicy.maximumBackoff": "600s",
    "deadLetterPolicy.maxDeliveryAttempts": 5,
    "pushConfig.attributes": {"x-goog-version": "v1"},
    "extensions.shards": 1,
}
_OF_A_SCHEMA = {"compatibility": "FULL_TRANSITIVE"}
_OF_A_SCHEDULE = {"timeZone": "UTC", "missed": "ONE"}
_ACK_DEADLINE, _EXACTLY_ONCE_ACK_DEADLINE = 10, 60
# Parts that say nothing where they are empty; others, such as `expirationPolicy: {}` (never), do.
_SAY_NOTHING = {"labels", "pushConfig", "attributes", "extensions", "schemaSettings"}
DURATIONS = {
    "messageRetentionDuration",
    "expirationPolicy.ttl",
    "retryPolicy.minimumBackoff",
    "retryPolicy.maximumBackoff",
    "interval",
}
_TIMES = {"start", "end"}


def _add_declared(kind: Any, path: str) -> None:
    """Adds the defaults and the durations among the fields of a dataclass to the tables above."""
    for field in fields_of(kind).values():
        where = f"{path}.{field.json_name}"
        if field.type is timedelta:
            DURATIONS.add(where)
        if has_fields(field.type):
            _add_declared(field.type, where)
            if field.default is not None and field.default is not MISSING:
                _SAY_NOTHING.add(field.json_name)
        elif field.default not in (None, MISSING, ()):
            _DEFAULTS[where] = to_json(field.default)


for _kind in (TopicExtensions, Extensions):
    _add_declared(_kind, "extensions")
_PRIORITIES = "extensions.priorities"  # which is a number, if its levels are all that there is to say
_REFERENCES = {"topic": "topics", "deadLetterPolicy.deadLetterTopic": "topics", "schemaSettings.schema": "schemas"}
# Whose names are the users' own.
_OPAQUE = {"labels", "pushConfig.attributes", "message.attributes", "template.attributes"}


def whole(name: str, collection: str, project: str) -> str:
    """`projects/p/topics/t` for `t`; what has slashes is whole, and `_deleted-topic_` is no name."""
    return name if "/" in name or name.startswith("_") else f"{project}/{collection}/{name}"


def short(name: str, collection: str, project: str) -> str:
    return name.removeprefix(f"{project}/{collection}/")


def comparable(given: Mapping[str, Any], collection: str, project: str) -> Json:
    """A resource of `collection` in the form that is compared; labels without the mark, without secrets."""
    found = {name: value for name, value in given.items() if name not in _OUTPUT_ONLY[collection]}
    defaults = {"schemas": _OF_A_SCHEMA, "schedules": _OF_A_SCHEDULE}.get(collection, _DEFAULTS)
    if collection == "topics":  # which retains nothing for its own sake if nobody says so
        defaults = {name: value for name, value in defaults.items() if name != "messageRetentionDuration"}
    body: Json = _stripped(_translated(found, project), "", defaults)
    usual = {_ACK_DEADLINE, 0} | ({_EXACTLY_ONCE_ACK_DEADLINE} if body.get("enableExactlyOnceDelivery") else set())
    if body.get("ackDeadlineSeconds") in usual:
        del body["ackDeadlineSeconds"]
    if labels := {name: value for name, value in body.pop("labels", {}).items() if name != MARK}:
        body["labels"] = dict(sorted(labels.items()))  # servers have them in any order
    return body


def secrets_of(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The fingerprints of the secrets that a file or a server has; None where a file says nothing of them."""
    push = (given.get("extensions") or {}).get("push") or {}
    if push.get(SECRETS) is not None:
        return tuple(sha256(secret.encode()).hexdigest()[:8] for secret in push[SECRETS])
    return None


def fingerprints_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    push = (given.get("extensions") or {}).get("push") or {}
    return tuple(push.get(FINGERPRINTS, ()))


def _translated(value: Any, project: str, path: str = "") -> Any:
    """Durations in seconds, references as whole names; without what says nothing, and without secrets."""
    match value:
        case dict() if path not in _OPAQUE:
            parts = {
                name: _translated(part, project, f"{path}.{name}" if path else name)
                for name, part in value.items()
                if name not in ("state", SECRETS, FINGERPRINTS)
            }
            if path in ("message", "template") and "text" in parts:
                parts["data"] = b64encode(str(parts.pop("text")).encode()).decode()
            said = {name: part for name, part in parts.items() if not _says_nothing(name, part)}
            return said["levels"] if path == _PRIORITIES and said.keys() == {"levels"} else said
        case str() if path in _REFERENCES:
            return whole(value, _REFERENCES[path], project)
        case str() | int() | float() if path in DURATIONS:
            return _duration(value)
        case str() if path in _TIMES:
            return _time(value)
    return value


def _says_nothing(name: str, value: Any) -> bool:
    return value is None or value is False or value in ("", []) or (value == {} and name in _SAY_NOTHING)


def _duration(value: str | float) -> str:
    try:
        return duration_text(str(value), "")
    except Misuse:
        return str(value)  # the server says what is wrong with it


def _time(value: str) -> str:
    """Formats a time in UTC, always in the same way."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return value  # the server says what is wrong with it
    return value if moment.tzinfo is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _stripped(value: Json, path: str, defaults: Mapping[str, Any]) -> Json:
    """Returns the value without defaults."""
    found: Json = {}
    for name, part in value.items():
        where = f"{path}{name}"
        if where in defaults and part == defaults[where]:
            continue
        rest = _stripped(part, f"{where}.", defaults) if isinstance(part, dict) else part
        if not _says_nothing(name, rest) or {where.partition(".")[0], path[:-1]} & _OPAQUE:
            found[name] = rest
    return found


def exported(resource: Mapping[str, Any], collection: str, project: str) -> Json:
    """A resource as `broker export` writes it: what is not by default, short names, fingerprints for secrets."""
    body = comparable(resource, collection, project)
    for path, other in _REFERENCES.items():
        *parents, last = path.split(".")
        holder = body
        for parent in parents:
            holder = holder.get(parent, {})
        if last in holder:
            holder[last] = short(holder[last], other, project)
    body = dict(_written(body))
    if prints := fingerprints_of(resource):
        body.setdefault("extensions", {}).setdefault("push", {})[FINGERPRINTS] = list(prints)
    return body


def _written(value: Any, path: str = "") -> Any:
    """The value as people write it: durations with units, and data that is text as `text`."""
    match value:
        case dict() if path not in _OPAQUE:
            parts = {name: _written(part, f"{path}.{name}" if path else name) for name, part in value.items()}
            text = _as_text(parts["data"]) if path in ("message", "template") and "data" in parts else None
            if text is None:
                return parts
            return {
                "text" if name == "data" else name: text if name == "data" else part for name, part in parts.items()
            }
        case str() if path in DURATIONS:
            return readable(path, value)
    return value


def readable(path: str, value: Any) -> Any:
    """The value of a field as people write it: "7d" for "604800s"."""
    if path not in DURATIONS or not isinstance(value, str):
        return value
    try:
        return format_units(parse_duration(value, path))
    except InvalidArgument:
        return value  # the server says what is wrong with it


def _as_text(data: str) -> str | None:
    """None: it is not text that a file in YAML can have as it is."""
    try:
        text = b64decode(data, validate=True).decode()
    except ValueError:
        return None
    return text if all(one.isprintable() or one == "\n" for one in text) else None


def policy_form(policy: Mapping[str, Any] | None) -> list[Json]:
    """The bindings of a policy, in an order of their own."""
    bindings = [
        {"role": one["role"], "members": sorted(one.get("members", []))}
        | ({"condition": one["condition"]} if one.get("condition") else {})
        for one in (policy or {}).get("bindings", [])
        if one.get("members")
    ]
    return sorted(bindings, key=str)
