"""Plans the changes by which a project gets what files declare.  This module decides; it changes nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from broker.client.api import Json
from broker.features.declarations.form import (
    FINGERPRINTS,
    MARK,
    SECRETS,
    comparable,
    fingerprints_of,
    policy_form,
    secrets_of,
)
from broker.features.declarations.reading import COLLECTIONS, Declared
from broker.features.declarations.state import State

Action = Literal["create", "update", "delete", "none"]
NOUNS = {"schemas": "schema", "topics": "topic", "subscriptions": "subscription", "schedules": "schedule"}
_IMMUTABLE = {"subscriptions": ("topic", "enableMessageOrdering"), "schemas": ("type",)}
_OF_A_CHANGED_FILTER = (
    "by setFilter, for messages published from then on; earlier ones keep the verdict of the old filter"
)
_WAY_OUT = {
    "subscriptions": "declare another subscription beside it, or delete this one, with what it has yet to get, "
    "by `broker sub delete {id}` and apply again",
    "schemas": "declare another schema, and change the topic to it",
}


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a field: None for an absent value.  `note`: what else the reader of a plan must know."""

    field: str
    before: Any
    after: Any
    note: str = ""

    def as_json(self) -> Json:
        return {"field": self.field, "from": self.before, "to": self.after} | (
            {"note": self.note} if self.note else {}
        )


@dataclass(slots=True)
class Step:
    """`body` is what a call sends.  `problem`: why it cannot be done, and the way out."""

    kind: str
    name: str
    action: Action
    changes: Sequence[Change] = ()
    body: Json = field(default_factory=dict)
    problem: str = ""
    is_done: bool = False

    @property
    def fields(self) -> set[str]:
        """The fields of the resource that change."""
        return {change.field.partition(".")[0] for change in self.changes}

    @property
    def sets_filter(self) -> bool:
        """Whether the filter of an existing subscription changes, which no field mask may name."""
        return self.kind == "subscription" and self.action == "update" and "filter" in self.fields

    def as_json(self) -> Json:
        data: Json = {"kind": self.kind, "name": self.name, "action": self.action}
        if self.changes:
            data["changes"] = [change.as_json() for change in self.changes]
        return data | ({"problem": self.problem} if self.problem else {}) | {"done": self.is_done}


def make_plan(
    declared: Declared,
    state: State,
    project: str,
    *,
    owner: str,
    prune: bool,
    policy_of: Callable[[str], Json],
) -> list[Step]:
    """Returns the steps in the order in which to take them.

    `policy_of` reads the policy of an existing resource.
    """
    steps = []
    for collection in COLLECTIONS:
        there = state.resources[collection]
        for name, given in declared.resources[collection].items():
            wanted = {key: value for key, value in given.items() if key != "policy"}
            if name in there:
                steps.append(_compared(collection, name, wanted, there[name], project))
            else:
                steps.append(_created(collection, name, wanted, project, owner))
    for name, policy in _policies(declared, project):
        exists = name == project or any(name in named for named in state.resources.values())
        steps.append(_policy_step(name, policy, policy_of(name) if exists else {}))
    return steps + (_pruned(declared, state, owner) if prune else [])


def _created(collection: str, name: str, given: Json, project: str, owner: str) -> Step:
    body = comparable(given, collection, project)
    step = Step(NOUNS[collection], name, "create", _changes({}, body), _with_secrets(body, given))
    if collection not in ("schemas", "schedules"):  # which have no labels
        step.body["labels"] = body.get("labels", {}) | {MARK: owner}
    if fingerprints_of(given) and secrets_of(given) is None:
        step.problem = (
            "it is new, and a fingerprint is no secret: give extensions.push.webhookSecrets, "
            f"or take {FINGERPRINTS} out"
        )
    return step


def _compared(collection: str, name: str, given: Json, there: Json, project: str) -> Step:
    wanted, held = comparable(given, collection, project), comparable(there, collection, project)
    changes = [_noted(collection, change) for change in _changes(held, wanted)]
    secrets = secrets_of(given)
    if secrets is not None and secrets != fingerprints_of(there):
        changes.append(Change(f"extensions.push.{FINGERPRINTS}", list(fingerprints_of(there)), list(secrets)))
    fields = {change.field.partition(".")[0] for change in changes}
    step = Step(NOUNS[collection], name, "update" if changes else "none", changes)
    step.body = {key: value for key, value in _with_secrets(wanted, given).items() if key in fields}
    if "labels" in fields and MARK in there.get("labels", {}):
        step.body["labels"] = wanted.get("labels", {}) | {MARK: there["labels"][MARK]}
    if collection in ("schemas", "schedules") and changes:  # which are sent as a whole
        step.body = wanted
    if immutable := [change for change in changes if change.field in _IMMUTABLE.get(collection, ())]:
        first = immutable[0]
        way_out = _WAY_OUT[collection].format(id=name.rpartition("/")[2])
        step.action = "none"
        step.problem = f"{first.field} cannot be changed ({first.before!r} to {first.after!r}): {way_out}"
    return step


def _noted(collection: str, change: Change) -> Change:
    is_filter = (collection, change.field) == ("subscriptions", "filter")
    return replace(change, note=_OF_A_CHANGED_FILTER) if is_filter else change


def _policies(declared: Declared, project: str) -> list[tuple[str, Json]]:
    found = [] if declared.policy is None else [(project, declared.policy)]
    for collection in COLLECTIONS:
        found += [(n, d["policy"] or {}) for n, d in declared.resources[collection].items() if "policy" in d]
    return found


def _policy_step(name: str, wanted: Json, held: Json) -> Step:
    before, after = policy_form(held), policy_form(wanted)
    if before == after:
        return Step("policy", name, "none")
    body: Json = {"bindings": after} | ({"etag": held["etag"]} if "etag" in held else {})
    if any("condition" in one for one in after):
        body["version"] = 3
    return Step("policy", name, "update", [Change("bindings", before, after)], body)


def _pruned(declared: Declared, state: State, owner: str) -> list[Step]:
    """Returns the steps that delete resources which `apply` created for this owner and no file declares.

    Subscriptions come before their topics.
    """
    steps = []
    for collection in ("subscriptions", "topics"):
        for name, there in state.resources[collection].items():
            if is_marked(there, owner) and name not in declared.resources[collection]:
                steps.append(Step(NOUNS[collection], name, "delete"))
    return steps


def is_marked(resource: Json, owner: str) -> bool:
    """Whether `apply` made it in this name."""
    return bool(resource.get("labels", {}).get(MARK) == owner)


def _changes(held: Json, wanted: Json) -> list[Change]:
    """Returns the changes by field.  A part with fields of its own has the changes within it."""
    found = []
    for name in sorted({*held, *wanted}):
        before, after = held.get(name), wanted.get(name)
        if before == after:
            continue
        whole = {} in (before, after) or not all(isinstance(one, dict | None) for one in (before, after))
        if whole:
            found.append(Change(name, before, after))
        else:
            inner = _changes(before or {}, after or {})
            found += [Change(f"{name}.{one.field}", one.before, one.after) for one in inner]
    return found


def _with_secrets(body: Json, given: Json) -> Json:
    """`body` with the secrets of the file, which no plan shows."""
    push = (given.get("extensions") or {}).get("push") or {}
    if push.get(SECRETS) is None:
        return dict(body)
    extensions = body.get("extensions", {})
    return body | {"extensions": extensions | {"push": extensions.get("push", {}) | {SECRETS: push[SECRETS]}}}
