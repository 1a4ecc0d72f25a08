"""Who may do what in a project: policies, service accounts and their keys, API keys, and roles."""

import asyncio
import json
from shlex import quote

from broker.client.words import leaf
from broker.console.api import Json
from broker.console.bodies import escaped
from broker.console.page import PAGE_SIZE, Block, Command, Page, PageRoute, View, list_page, no_block

_POLICY = {"options": {"requestedPolicyVersion": 3}}
_COLLECTIONS = ("topics", "subscriptions", "snapshots", "schemas")  # whose policies are read by GET


async def access(view: View) -> Page:
    """The policy of the project or of one of its resources, and why a principal may do something or may not."""
    project, asked = view.project, view.asked("resource", "principal", "permission")
    resource = _full_name(project, asked.get("resource", ""))
    principal, permission = asked.get("principal", ""), asked.get("permission", "")
    policy, explained, named = await asyncio.gather(
        _policy(view, resource),
        _explained(view, principal, permission, resource),
        _named(view, principal) if principal else no_block(),
    )
    return Page(
        template="access.html",
        title="Access",
        name=project,
        section="access",
        commands=[
            _policy_command(project, resource),
            *([_explain_command(project, principal, permission, resource)] if explained is not None else []),
        ],
        row_actions={"grant": [resource], "revoke": [resource]},
        data={
            "resource": resource,
            "short": asked.get("resource", ""),
            "policy": policy,
            "bindings": _bindings(policy),
            "principal": principal,
            "permission": permission,
            "explained": explained,
            "named": named,
            "policies": _policies(named),
        },
    )


async def service_accounts(view: View) -> Page:
    project = view.project
    found = await view.get(f"{project}/serviceAccounts", **view.page)
    return list_page(
        view,
        "Service accounts",
        collection="serviceAccounts",
        command="broker auth accounts list",
        data={"accounts": found.get("accounts", []), "next": view.next_page(found)},
        section="access",
    )


async def service_account(view: View) -> Page:
    name, project = f"{view.project}/serviceAccounts/{view.parts['account']}", view.parts["project"]
    found = await view.get(name)
    email = found["email"]
    keys, policy, named = await asyncio.gather(
        view.block(f"{name}/keys"),
        _policy(view, name),
        _named(view, f"serviceAccount:{email}"),
    )
    return Page(
        template="service_account.html",
        title=email,
        name=name,
        section="access",
        commands=[
            Command(f"broker auth accounts show {email} --project {project}", name),
            Command(f"broker auth keys list {email} --project {project}", f"{name}/keys"),
        ],
        row_actions={"delete": [key["name"] for key in keys.list("keys")], "revoke": [name]},
        data={
            "account": found,
            "keys": keys,
            "policy": policy,
            "bindings": _bindings(policy),
            "named": named,
            "policies": _policies(named),
        },
    )


async def api_keys(view: View) -> Page:
    project = view.project
    found = await view.get(f"{project}/apiKeys", **view.page)
    return list_page(
        view,
        "API keys",
        collection="apiKeys",
        command="broker auth api-keys list",
        data={"keys": found.get("keys", []), "next": view.next_page(found)},
        section="access",
        row_actions={"delete": [key["name"] for key in found.get("keys", ())]},
    )


async def roles(view: View) -> Page:
    project = view.project
    own, predefined = await asyncio.gather(
        view.block(f"{project}/roles", **view.page),
        view.block("roles", pageSize=PAGE_SIZE),
    )
    return Page(
        template="roles.html",
        title="Roles",
        name=project,
        section="access",
        commands=[
            Command(f"broker auth roles list --project {leaf(project)}", f"{project}/roles"),
            Command("", "roles"),
        ],
        data={"own": own, "predefined": predefined, "next": view.next_page(own.answer)},
    )


async def role(view: View) -> Page:
    """A role of the project, or a predefined one with the permissions that it has on every broker."""
    is_own = "project" in view.parts
    name = f"{view.project}/roles/{view.parts['role']}" if is_own else f"roles/{view.parts['predefined']}"
    found = await view.get(name)
    permissions = found.get("includedPermissions", [])
    return Page(
        template="role.html",
        title=escaped(found.get("title") or leaf(name)),
        name=name,
        section="access",
        commands=[Command(f"broker auth roles show {name}", name)],
        data={"role": found, "groups": _by_resource(permissions), "count": len(permissions)},
    )


def _full_name(project: str, given: str) -> str:
    """Return the full name of a resource: "topics/orders" is short for one of the project."""
    if not given:
        return project
    return given if given.startswith("projects/") else f"{project}/{given}"


async def _policy(view: View, resource: str) -> Block:
    path = f"{resource}:getIamPolicy"
    if _is_read_by_get(resource):
        return await view.block(path, **{"options.requestedPolicyVersion": 3})
    return await view.post_block(path, _POLICY)


def _bindings(policy: Block) -> list[tuple[str, str]]:
    """Return each role that a policy gives, with the principal that has it."""
    return sorted((one["role"], member) for one in policy.list("bindings") for member in one.get("members", ()))


async def _named(view: View, principal: str) -> Block:
    """Return the resources whose policies name the principal."""
    return await view.block(f"{view.project}:search", q=principal, kinds="POLICY", pageSize=PAGE_SIZE)


def _policies(found: Block) -> list[str]:
    """Return the names of resources whose policies were found."""
    return [one["name"] for one in found.list("results")]


def _is_read_by_get(resource: str) -> bool:
    parts = resource.split("/")
    return len(parts) > 2 and parts[2] in _COLLECTIONS


async def _explained(view: View, principal: str, permission: str, resource: str) -> Block | None:
    """Return why a principal has a permission or lacks it; None if the page is not asked."""
    if not (principal and permission):
        return None
    return await view.post_block(f"{view.project}:explainAccess", _question(principal, permission, resource))


def _question(principal: str, permission: str, resource: str) -> Json:
    return {"principal": principal, "permission": permission, "resource": resource}


def _policy_command(project: str, resource: str) -> Command:
    return Command(
        f"broker auth policy get {quote(resource)} --project {leaf(project)}",
        f"{resource}:getIamPolicy",
        "" if _is_read_by_get(resource) else "{}",
    )


def _explain_command(project: str, principal: str, permission: str, resource: str) -> Command:
    return Command(
        f"broker auth policy explain {quote(resource)} {quote(permission)} --member {quote(principal)} "
        f"--project {leaf(project)}",
        f"{project}:explainAccess",
        json.dumps(_question(principal, permission, resource)),
    )


def _by_resource(permissions: list[str]) -> list[tuple[str, list[str]]]:
    """Group permissions such as "pubsub.topics.get" by what they are about: "pubsub.topics", with "get"."""
    groups: dict[str, list[str]] = {}
    for permission in permissions:
        about, _, verb = permission.rpartition(".")
        groups.setdefault(about, []).append(verb)
    return sorted(groups.items())


PAGES = [
    PageRoute(
        "projects/{project}/access", access, ["IAMPolicy.GetIamPolicy", "IAM.ExplainAccess", "SearchProject"]
    ),
    PageRoute("projects/{project}/serviceAccounts", service_accounts, ["IAM.ListServiceAccounts"]),
    PageRoute(
        "projects/{project}/serviceAccounts/{account}",
        service_account,
        [
            "IAM.GetServiceAccount",
            "IAM.ListServiceAccountKeys",
            "IAMPolicy.GetIamPolicy",
            "SearchProject",
        ],
    ),
    PageRoute("projects/{project}/apiKeys", api_keys, ["ApiKeys.ListApiKeys"]),
    PageRoute("projects/{project}/roles", roles, ["IAM.ListRoles", "IAM.ListPredefinedRoles"]),
    PageRoute("projects/{project}/roles/{role}", role, ["IAM.GetRole"]),
    PageRoute("roles/{predefined}", role, ["IAM.GetPredefinedRole"]),
]
