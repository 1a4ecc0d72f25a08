"""Reads the state of a project, for `apply` and `export`."""

from dataclasses import dataclass

from broker.client.api import Api, Json, NotKnown, Refused

_NO_POLICIES = {"UNIMPLEMENTED", "NOT_FOUND"}  # what servers say that have none, such as Google's emulator
_VERSION = 3  # with conditions


@dataclass(frozen=True, slots=True)
class State:
    """The resources of a project, by collection and name."""

    resources: dict[str, dict[str, Json]]


def read_state(api: Api, project: str, *, schedules: bool = True) -> State:
    """Reads all topics, subscriptions and schemas; `schedules`: those too, which not everybody may list."""
    return State(
        {
            "schemas": _if_known(api, f"{project}/schemas", "schemas", {"view": "FULL"}),
            "topics": _by_name(api.all_of(f"{project}/topics", "topics")),
            "subscriptions": _by_name(api.all_of(f"{project}/subscriptions", "subscriptions")),
            "schedules": _if_known(api, f"{project}/schedules", "schedules") if schedules else {},
        }
    )


def read_policy(api: Api, resource: str) -> Json:
    """{} where there is none, or where the server knows none."""
    path = f"{resource}:getIamPolicy"
    try:
        if resource.count("/") == 1:
            return api.call("POST", path, {"options": {"requestedPolicyVersion": _VERSION}})
        return api.call("GET", path, params={"options.requestedPolicyVersion": _VERSION})
    except NotKnown:
        return {}
    except Refused as error:
        if error.status not in _NO_POLICIES:
            raise
        return {}


def _if_known(api: Api, path: str, field: str, params: Json | None = None) -> dict[str, Json]:
    """{} of a server that has no such thing."""
    try:
        return _by_name(api.all_of(path, field, params))
    except NotKnown:
        return {}
    except Refused as error:
        if error.status != "UNIMPLEMENTED":
            raise
        return {}


def _by_name(found: list[Json]) -> dict[str, Json]:
    return {one["name"]: one for one in found}
