"""Reads declarations from files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from broker.client.api import Json
from broker.client.files import read_text
from broker.client.stop import Misuse
from broker.client.yaml_documents import Document, read_documents
from broker.features.declarations.form import MARK, short, whole
from broker.features.declarations.json_schema import json_schema

COLLECTIONS = ("schemas", "topics", "subscriptions", "schedules")  # in the order in which they are made


@dataclass(slots=True)
class Declared:
    """The declared resources, by collection and full name.

    `policy` is the project's, None if it is not declared.
    """

    resources: dict[str, dict[str, Json]] = field(default_factory=lambda: {name: {} for name in COLLECTIONS})
    policy: Json | None = None


def read_declarations(files: Sequence[str], project: str) -> Declared:
    """Reads declarations from YAML or JSON; "-" is standard input.  Raises Misuse."""
    declared = Declared()
    validator = jsonschema_rs.validator_for(json_schema())
    for file in files:
        for document in _documents(file):
            if document.value is None:
                continue
            _check_form(validator, document, file)
            _add(declared, document, file, project)
    return declared


def _documents(file: str) -> list[Document]:
    return read_documents(read_text(file, "--file"), file)


def _check_form(validator: Any, document: Document, file: str) -> None:
    """Raises Misuse."""
    try:
        error = next(validator.iter_errors(document.value), None)
    except ValueError as refused:
        raise Misuse(f"{file}{document.line_of(())}: it cannot be read: {refused}") from None
    if error is None:
        return
    path = error.instance_path
    where = ".".join(map(str, path))
    remedy = document.remedy(path) if '"string"' in error.message else ""
    said = f"{f'{where}: ' if where else ''}{error.message[:300]}{remedy}"
    raise Misuse(f"{file}{document.line_of(path)}: {said}")


def _add(declared: Declared, document: Document, file: str, project: str) -> None:
    """Raises Misuse."""
    value: Json = document.value
    if "policy" in value:
        if declared.policy is not None:
            raise Misuse(f"{file}{document.line_of(['policy'])}: the policy of the project is declared twice")
        declared.policy = value["policy"] or {}
    for collection in COLLECTIONS:
        known = declared.resources[collection]
        for given, fields in (value.get(collection) or {}).items():
            where = f"{file}{document.line_of([collection, given])}"
            name = whole(given, collection, project)
            if not name.startswith(f"{project}/{collection}/"):
                raise Misuse(f"{where}: {collection} has {given!r}, which is not of {project}")
            if name in known:
                raise Misuse(f"{where}: {collection}.{short(name, collection, project)} is declared twice")
            if MARK in ((fields or {}).get("labels") or {}):
                raise Misuse(f"{where}: {collection}.{given}: the label {MARK} is what `apply` marks things with")
            known[name] = dict(fields or {})
