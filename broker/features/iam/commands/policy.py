"""`broker auth policy`: who has which roles on a project, or on a resource of it."""

from collections.abc import Callable, Sequence

import click

from broker.access.principals.policy import canonical_member
from broker.client.api import Api, Json, Refused
from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.output import Shown
from broker.client.policies import with_member, without_member
from broker.client.stop import Stop
from broker.features.iam.commands.names import guessing_accounts, member_of, resource_of, role_of
from broker.model.names import project_within

_ATTEMPTS = 5  # where others change the same policy
_VERSION = 3  # with conditions, which are kept as they are
_member = click.option(
    "--member",
    metavar="MEMBER",
    required=True,
    help="A service account's id, or user:EMAIL, group:EMAIL, allUsers.",
)
_role = click.option("--role", metavar="ROLE", required=True, help="Such as publisher, or a whole name.")


@calling("get", "broker auth policy get projects/demo")
@click.argument("resource")
def get(session: Session, *, resource: str) -> Shown:
    """Show the policy of a resource; what it has from its project is in the project's."""
    return _shown(_read(session.api, resource_of(session, resource)))


@calling("add", "broker auth policy add topics/orders --role publisher --member billing")
@_member
@_role
@click.argument("resource")
def add(session: Session, *, member: str, role: str, resource: str) -> Shown:
    """Give a member a role on a resource."""
    resource, role, member = _named(session, resource, role, member)
    member = canonical_member(member)

    with guessing_accounts(session, member):
        return _change(session.api, resource, lambda bindings: with_member(bindings, role, member))


@calling(
    "remove",
    "broker auth policy remove topics/orders --role publisher --member billing",
)
@_member
@_role
@click.argument("resource")
def remove(session: Session, *, member: str, role: str, resource: str) -> Shown:
    """Take a role from a member; bindings with a condition stay."""
    resource, member = resource_of(session, resource), canonical_member(member_of(session, member))
    role = role if "/" in role else role_of(session, role)  # a role that is gone can be taken away

    def edit(bindings: Sequence[Json]) -> list[Json]:
        left = without_member(bindings, role, member)
        if left == bindings:
            raise Stop(f"{member} does not have {role} by the policy of {resource}")
        return left

    return _change(session.api, resource, edit)


@calling(
    "test",
    "broker auth policy test topics/orders pubsub.topics.publish",
    "broker auth policy test topics/orders pubsub.topics.get --also topics/other",
)
@click.option("--also", metavar="RESOURCE", multiple=True, help="Another resource of the project; may be repeated.")
@click.argument("resource")
@click.argument("permissions", metavar="PERMISSION...", nargs=-1, required=True)
def test(session: Session, *, resource: str, permissions: tuple[str, ...], also: tuple[str, ...]) -> Shown:
    """Say which permissions the caller has on a resource."""
    name = resource_of(session, resource)
    if also:
        return _test_several(session, [name, *(resource_of(session, other) for other in also)], permissions)
    held = session.api.call("POST", f"{name}:testIamPermissions", {"permissions": list(permissions)})
    held = held.get("permissions", [])
    rows = [[permission, _yes_or_no(permission in held)] for permission in permissions]
    return Shown(data=held, columns=("permission", "held"), rows=rows, whole=("held",))


def _test_several(session: Session, names: Sequence[str], permissions: Sequence[str]) -> Shown:
    body = {"permissions": list(permissions), "resources": names}
    project = project_within(names[0])
    found = session.api.call("POST", f"{project}:testIamPermissions", body)["resources"]
    rows = [
        [permission, one["name"].removeprefix(f"{project}/"), _yes_or_no(permission in one["permissions"])]
        for one in found
        for permission in permissions
    ]
    return Shown(data=found, columns=("permission", "resource", "held"), rows=rows, whole=("resource", "held"))


def _yes_or_no(held: bool) -> str:
    return "yes" if held else "no"


@calling(
    "explain",
    "broker auth policy explain topics/orders pubsub.topics.get --member billing",
)
@_member
@click.argument("resource")
@click.argument("permission")
def explain(session: Session, *, resource: str, permission: str, member: str) -> Shown:
    """Say by which role a member has a permission on a resource, or why it does not; needs this broker."""
    name, principal = resource_of(session, resource), member_of(session, member)
    body = {"principal": principal, "permission": permission, "resource": name}
    found = session.api.call("POST", f"{project_within(name)}:explainAccess", body)
    return Shown(data=found, fields={"access": found["access"], "explanation": found["explanation"]})


def _named(session: Session, resource: str, role: str, member: str) -> tuple[str, str, str]:
    return resource_of(session, resource), role_of(session, role), member_of(session, member)


def _change(api: Api, resource: str, edit: Callable[[Sequence[Json]], list[Json]]) -> Shown:
    """Changes the policy of a resource with `edit`, which returns the new bindings."""
    for _ in range(_ATTEMPTS):
        policy = _read(api, resource)
        bindings = edit(policy.get("bindings", []))
        if bindings == policy.get("bindings", []):
            return _shown(policy)
        policy["bindings"] = bindings
        try:
            return _shown(api.call("POST", f"{resource}:setIamPolicy", {"policy": policy}))
        except Refused as error:
            if error.status != "ABORTED":  # somebody else was faster
                raise
    raise Stop(f"the policy of {resource} is changed all the time by others; try again")


def _read(api: Api, resource: str) -> Json:
    path = f"{resource}:getIamPolicy"
    if resource.count("/") == 1 or "/serviceAccounts/" in resource:
        return api.call("POST", path, {"options": {"requestedPolicyVersion": _VERSION}})
    return api.call("GET", path, params={"options.requestedPolicyVersion": _VERSION})


def _shown(policy: Json) -> Shown:
    rows = [
        [binding["role"], member, binding.get("condition", {}).get("title", "")]
        for binding in policy.get("bindings", [])
        for member in binding["members"]
    ]
    columns = ("role", "member", "condition")
    return Shown(
        data=policy,
        columns=columns,
        rows=rows,
        whole=("member",),
        minor=("condition",),
        nothing="Nobody has a role by this policy.",
    )


COMMANDS = Group(
    "policy",
    help="Who has which roles: on projects/P, topics/T, subscriptions/S and so on.",
    commands=[get, add, remove, test, explain],
)
