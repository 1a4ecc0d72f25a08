"""What files declare."""

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from broker.cli.client.api import Json
from broker.cli.client.declarations.form import MARK, short, whole
from broker.cli.client.declarations.json_schema import json_schema
from broker.cli.stop import Misuse

COLLECTIONS = ("schemas", "topics", "subscriptions", "schedules")  # in the order in which they are made


@dataclass(slots=True)
class Declared:
    """By collection and whole name; `policy` is the project's, None where nothing is said of it."""

    resources: dict[str, dict[str, Json]] = field(default_factory=lambda: {name: {} for name in COLLECTIONS})
    policy: Json | None = None


class _Loader(yaml.SafeLoader):
    """What YAML reads, but a name that is given twice is a mistake, and a time is a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} is given twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_declarations(files: Sequence[str], project: str) -> Declared:
    """Of YAML or JSON; "-" is standard input.  Raises Misuse."""
    declared = Declared()
    validator = jsonschema_rs.validator_for(json_schema())
    for file in files:
        for document in _documents(file):
            if document is None:
                continue
            for error in validator.iter_errors(document):
                where = ".".join(map(str, error.instance_path))
                raise Misuse(f"{file}: {f'{where}: ' if where else ''}{error.message[:300]}")
            _add(declared, document, file, project)
    return declared


def _documents(file: str) -> list[Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return list(yaml.load_all(text, _Loader))
    except OSError as error:
        raise Misuse(f"--file {file}: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        at = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise Misuse(f"{file} cannot be read: {error.problem}{at}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise Misuse(f"{file} cannot be read: {error}") from None


def _add(declared: Declared, document: Json, file: str, project: str) -> None:
    if "policy" in document:
        if declared.policy is not None:
            raise Misuse(f"{file}: the policy of the project is declared twice")
        declared.policy = document["policy"] or {}
    for collection in COLLECTIONS:
        known = declared.resources[collection]
        for given, fields in (document.get(collection) or {}).items():
            name = whole(given, collection, project)
            if not name.startswith(f"{project}/{collection}/"):
                raise Misuse(f"{file}: {collection} has {given!r}, which is not of {project}")
            if name in known:
                raise Misuse(f"{file}: {collection}.{short(name, collection, project)} is declared twice")
            if MARK in ((fields or {}).get("labels") or {}):
                raise Misuse(f"{file}: {collection}.{given}: the label {MARK} is what `apply` marks things with")
            known[name] = dict(fields or {})
