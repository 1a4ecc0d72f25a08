"""Problems of a plan: references to what will not exist, and schemas and filters that the server rejects."""

from collections.abc import Sequence
from contextlib import suppress

from broker.client.api import Api, Json, NotKnown, Refused
from broker.client.words import leaf
from broker.features.declarations.plan import NOUNS, Step
from broker.features.declarations.reading import COLLECTIONS, Declared
from broker.features.declarations.state import State

_DELETED = "_deleted-topic_"
_REFERENCES = {  # by the kind of a step, the fields that name other resources
    "topic": (("schemaSettings.schema", "schemas"),),
    "subscription": (("topic", "topics"), ("deadLetterPolicy.deadLetterTopic", "topics")),
    "schedule": (("topic", "topics"),),
}


def check_plan(api: Api, plan: Sequence[Step], declared: Declared, state: State, project: str) -> None:
    """Note the problem of each step that would fail, or that would break something else.  Raises Stop."""
    pruned = {step.name for step in plan if step.action == "delete"}
    there = {
        name
        for collection in COLLECTIONS
        for name in (*state.resources[collection], *declared.resources[collection])
    } - pruned
    for step in plan:
        if step.problem:
            continue
        if step.action == "delete":
            step.problem = _why_not_pruned(step, plan, state)
        elif step.action != "none":
            step.problem = _why_not_made(step, there, pruned, project) or _why_not_taken(api, step, state)


def _why_not_made(step: Step, there: set[str], pruned: set[str], project: str) -> str:
    for path, collection in _REFERENCES.get(step.kind, ()):
        name = _value(step.body, path)
        if not name or name in there or name == _DELETED or not name.startswith(f"{project}/"):
            continue  # of another project nothing is known
        noun = NOUNS[collection]
        if name in pruned:
            return f"{path} names the {noun} {leaf(name)}, which --prune deletes: declare it"
        return f"{path} names the {noun} {leaf(name)}, which does not exist: declare it, or create it first"
    return ""


def _why_not_pruned(step: Step, plan: Sequence[Step], state: State) -> str:
    """A schedule fails at each tick once its topic is gone."""
    if step.kind != "topic":
        return ""
    after = {name: one.get("topic") for name, one in state.resources["schedules"].items()}
    after |= {one.name: one.body["topic"] for one in plan if one.kind == "schedule" and "topic" in one.body}
    names = sorted(leaf(name) for name, topic in after.items() if topic == step.name)
    if not names:
        return ""
    return (
        f"the schedule {names[0]} publishes to it: declare the topic, or delete the schedule first "
        f"(`broker schedule delete {names[0]}`)"
    )


def _why_not_taken(api: Api, step: Step, state: State) -> str:
    """Returns why the server would reject a step, where it can say so without carrying it out; "" otherwise."""
    filter_text = step.body.get("filter", "")
    body: Json
    if step.sets_filter:
        try:
            body = {"filter": filter_text, "validateOnly": True}
            return _rejection(api, f"{step.name}:setFilter", body, "FAILED_PRECONDITION", "PERMISSION_DENIED")
        except NotKnown as error:
            return str(error)
    with suppress(NotKnown):  # another server has no schemas, or no trials of them or of filters
        if step.kind == "schema":
            project = step.name.partition("/schemas/")[0]
            return _rejection(api, f"{project}/schemas:validate", {"schema": step.body | {"name": step.name}})
        if (
            step.kind == "subscription"
            and filter_text.strip()
            and step.body.get("topic") in state.resources["topics"]
        ):
            body = {"filter": filter_text, "pageSize": 1, "includeData": False}
            return _rejection(api, f"{step.body['topic']}:testFilter", body)
    return ""


def _rejection(api: Api, path: str, body: Json, *more_codes: str) -> str:
    """Returns why the server rejects a trial call: INVALID_ARGUMENT, or one of `more_codes`.  Raises NotKnown."""
    try:
        api.call("POST", path, body)
    except Refused as error:
        return error.reason if error.status in ("INVALID_ARGUMENT", *more_codes) else ""
    return ""


def _value(body: Json, path: str) -> str:
    *parents, last = path.split(".")
    for parent in parents:
        body = body.get(parent) or {}
    return str(body.get(last, ""))
