"""Executes a plan step by step.  Completed steps are not undone if a later step fails."""

from broker.client.api import Api, Refused
from broker.client.fields import snake
from broker.features.declarations.plan import Step, is_marked


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
            _update(api, step)
        case _, "delete":
            _delete(api, step, owner)
    step.is_done = True


def _update(api: Api, step: Step) -> None:
    fields, body = step.fields, dict(step.body)
    if step.sets_filter:
        api.call("POST", f"{step.name}:setFilter", {"filter": body.pop("filter", "")})
        fields.remove("filter")
    if fields:
        mask = ",".join(map(snake, sorted(fields)))
        api.call("PATCH", step.name, {step.kind: body | {"name": step.name}, "updateMask": mask})


def _delete(api: Api, step: Step, owner: str) -> None:
    """Deletes a resource, unless it was given another owner since the plan was made, or deleted."""
    try:
        if is_marked(api.call("GET", step.name), owner):
            api.call("DELETE", step.name)
    except Refused as error:
        if error.status != "NOT_FOUND":
            raise
