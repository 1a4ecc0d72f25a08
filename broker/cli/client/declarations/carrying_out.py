"""Doing what a plan says, step by step; what is done stays done if a later step fails."""

from broker.cli.client.api import Api, Json, Refused
from broker.cli.client.declarations.plan import Step, is_marked
from broker.cli.client.fields import snake


def carry_out(api: Api, step: Step, owner: str) -> None:
    """Raises Stop."""
    match step.kind, step.action:
        case _, "none":
            return
        case "schema", "create":
            parent, _, schema_id = step.name.rpartition("/")
            api.call("POST", parent, step.body, {"schemaId": schema_id})
        case "schema", "update":
            api.call("POST", f"{step.name}:commit", {"schema": step.body | {"name": step.name}})
        case "policy", _:
            api.call("POST", f"{step.name}:setIamPolicy", {"policy": step.body})
        case "schedule", _:
            api.call("PUT", step.name, step.body)
        case _, "create":
            api.call("PUT", step.name, step.body)
        case _, "update":
            api.call("PATCH", step.name, _update(step))
        case _, "delete":
            _delete(api, step, owner)
    step.is_done = True


def _update(step: Step) -> Json:
    fields = sorted({change.field.partition(".")[0] for change in step.changes})
    return {step.kind: step.body | {"name": step.name}, "updateMask": ",".join(map(snake, fields))}


def _delete(api: Api, step: Step, owner: str) -> None:
    """Unless somebody has made it his own since the plan was made, or deleted it."""
    try:
        if is_marked(api.call("GET", step.name), owner):
            api.call("DELETE", step.name)
    except Refused as error:
        if error.status != "NOT_FOUND":
            raise
