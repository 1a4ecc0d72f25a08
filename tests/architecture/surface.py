"""What the code, the specification and support.toml each say of the API, in one form to compare."""

import importlib
import re
import tomllib
from functools import cache
from typing import Any

import msgspec

from broker.api.generated.messages import request_of
from broker.api.google.passthrough import EXTENSION_FIELDS
from broker.api.google.passthrough import NAMES as PASSTHROUGH_NAMES
from broker.model import message
from broker.model.api_json import fields_of, has_fields
from broker.model.subscription import Extensions
from broker.model.topic_extensions import TopicExtensions
from tests.fixtures.broker import repository
from tests.fixtures.registered import RPCS, specification

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_JSON = {"rest", "journal_entry", "matched_message"}
Fields = dict[str, str]  # of a message: names as in a field mask, and names in JSON


@cache
def support() -> dict[str, Any]:
    """api_spec/support.toml."""
    return tomllib.loads((repository() / "api_spec" / "support.toml").read_text(encoding="utf-8"))


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """The specification's operations by method and path: ("GET", "/v1/projects/{project}/topics")."""
    return {
        (method.upper(), path): item[method]
        for path, item in specification()["paths"].items()
        for method in METHODS
        if method in item
    }


def api_operations() -> dict[tuple[str, str], dict[str, Any]]:
    """The operations below /v1/ as routes.py writes them: ("GET", "projects/*/topics")."""
    return {
        (method, re.sub(r"\{\w+\}", "*", path.removeprefix("/v1/"))): operation
        for (method, path), operation in operations().items()
        if path.startswith("/v1/")
    }


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = specification()["components"]["schemas"][name]
    return found


def level(entry: str | dict[str, str]) -> str:
    """ "full", "kept", "partial" or "refused"."""
    return entry if isinstance(entry, str) else entry["support"]


def reason(entry: str | dict[str, str]) -> str:
    return "" if isinstance(entry, str) else entry["reason"]


def codec_modules() -> list[Any]:
    """The modules that have the JSON of REST's requests and answers."""
    paths = (path.relative_to(repository()) for path in sorted((repository() / "broker").rglob("*.py")))
    return [
        importlib.import_module(".".join(path.with_suffix("").parts))
        for path in paths
        if path.parent.name == "codec" or path.stem in _JSON or path.stem.endswith("_rest")
    ]


@cache
def wire_messages() -> dict[str, list[Fields]]:
    """The messages that REST reads and prints, by their names in google.pubsub.v1: each with the fields that the
    code knows, once for each way in which it is read or printed.
    """
    found: dict[str, list[Fields]] = {}
    for module in (message, *codec_modules()):
        for name, struct in vars(module).items():
            if not isinstance(struct, type) or not issubclass(struct, msgspec.Struct):
                continue
            config = struct.__struct_config__
            # A struct is on the wire if it refuses unknown fields or is part of a response.
            if struct.__module__ == module.__name__ and (config.forbid_unknown_fields or config.omit_defaults):
                fields = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
                found.setdefault(_google_name(name), []).append(fields)
    for kind in extension_types():
        fields = {field.name: field.json_name for field in fields_of(kind).values()}
        found.setdefault(kind.__name__, []).append(fields)
    for name, descriptor in described_messages().items():
        extension_fields = {field: field for field in EXTENSION_FIELDS.get(descriptor.full_name, ())}
        if name == "Topic":
            extension_fields |= {PASSTHROUGH_NAMES[descriptor.full_name]: PASSTHROUGH_NAMES[descriptor.full_name]}
        found.setdefault(name, []).append({f.name: f.json_name for f in descriptor.fields} | extension_fields)
    return found


def extension_types() -> set[Any]:
    """The dataclasses of extension fields, with those of the fields within them."""
    reached, waiting = set[Any](), [Extensions, TopicExtensions]
    while waiting:
        kind: Any = waiting.pop()
        reached.add(kind)
        waiting += [field.type for field in fields_of(kind).values() if has_fields(field.type)]
    return reached


@cache
def described_messages() -> dict[str, Any]:
    """The descriptors of the messages in the requests about resources, as far as support.toml lists them."""
    reached: dict[str, Any] = {}
    waiting = [request_of(rpc.name).DESCRIPTOR for rpc in RPCS if rpc.target]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name not in reached:
            reached[descriptor.full_name] = descriptor
            waiting += [field.message_type for field in descriptor.fields if field.message_type is not None]
    return {d.name: d for d in reached.values() if d.name in support()["message"]}


def _google_name(name: str) -> str:
    if name == "NewMessage":
        return "PubsubMessage"
    stem = name.removesuffix("Body")
    request = stem != name and stem.startswith(("Create", "Update", "Modify", "Seek"))
    return f"{stem}Request" if request else stem
