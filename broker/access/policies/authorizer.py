"""Decides whether a caller has a permission on a resource.

Decisions are cached until something changes in the project of the resource; a cached decision costs a dictionary
access for each permission.  Policies are read when they are first needed, together with those of the parents of the
resource.  Any caller with a credential can name any number of resources that are not cached, so callers take turns
to read policies.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.access.credentials.directory import CredentialDirectory
from broker.access.credentials.named_principals import NamedPrincipal, find_principal
from broker.access.policies.explanation import Explanation, explain
from broker.access.policies.policy_rows import (
    BoundRole,
    find_bound_roles,
    find_policies,
    find_role_permissions,
    projects_of_member,
)
from broker.access.principals.caller import ALL_USERS, Caller
from broker.access.principals.permissions import PREDEFINED_ROLES
from broker.access.principals.policy import (
    ABOVE_PROJECTS,
    NO_POLICY,
    Policy,
    chain_of,
    is_allowed,
    permissions_of,
)
from broker.access.principals.service_account import ANY_PROJECT
from broker.access.versions.access_changes import AccessChanges
from broker.access.versions.version import AccessVersion, Validity
from broker.db.driver.database import Database
from broker.fairness.resource_turns import ResourceTurns
from broker.model.errors import PermissionDenied
from broker.model.names import project_within

MAX_DECISIONS, MAX_POLICIES = 50_000, 20_000
MAX_VISIBLE = 100_000  # names of resources that callers may see singly; some 30 MB
READS_AT_ONCE = 2  # of the connections that calls about resources have
MAX_READING = 20_000  # calls that wait for what is read
_ANY_PROJECT = f"projects/{ANY_PROJECT}"
_SEE_PROJECT = "resourcemanager.projects.get"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class Required(NamedTuple):
    """A permission on a resource.  `shown`: what the caller called it, where that is another name."""

    permission: str
    resource: str
    shown: str = ""


class Authorizer:
    """Keeps what it has read about a project until something changes there."""

    def __init__(self, database: Database, version: AccessVersion, directory: CredentialDirectory) -> None:
        self._database = database
        self._version = version
        self._directory = directory
        self._turns = ResourceTurns(at_once=READS_AT_ONCE, max_under_way=MAX_READING)
        self.turn_of = self._turns.of  # of a caller's project: whatever is read before its permission is known
        self._decisions: dict[tuple[Caller, str, str], tuple[bool, Validity]] = {}
        self._policies: dict[str, tuple[Policy, Validity]] = {}
        self._custom_roles: dict[str, tuple[frozenset[str], Validity]] = {}
        self._visible: dict[tuple[Caller, str, str], tuple[Sequence[Required], Validity]] = {}
        self._visible_names = 0
        self._public: set[str] | None = None  # the projects with a policy that binds all users; None: not known
        self._changed: set[str] = set()  # the projects for which `_public` is to be read again
        self._reading_public = asyncio.Lock()
        version.before_change(self._note_changes)

    async def check(self, caller: Caller, required: Sequence[Required]) -> None:
        """Raises PermissionDenied, and Unavailable where that cannot be known now."""
        if not self._version.is_fresh:
            await self._version.check()
        for permission, resource, shown in required:
            allowed = self._known(caller, permission, resource)
            if allowed is None:
                allowed = await self._decide(caller, permission, resource)
            if not allowed:
                raise _denied(permission, shown or resource)

    async def allowed(
        self, caller: Caller, permissions: Sequence[str], resources: Sequence[str]
    ) -> Mapping[str, list[str]]:
        """Returns those of the permissions that the caller has, by resource.  Raises Unavailable."""
        await self._version.check()
        chains = {resource: chain_of(self._canonical(resource)) for resource in resources}
        async with self.turn_of(caller.home):
            policies = await self._read_policies(
                list(dict.fromkeys(name for chain in chains.values() for name in chain))
            )
            roles = await self._read_roles(_roles_of(caller).union(*(policy.roles for policy in policies.values())))
        found = {resource: permissions_of(caller, chain, policies, roles) for resource, chain in chains.items()}
        return {resource: [name for name in permissions if name in held] for resource, held in found.items()}

    async def visible(self, caller: Caller, permission: str, within: str) -> Sequence[Required]:
        """Returns the permission on each resource whose name begins with `within` and on which the caller has it,
        by the policy of that resource or by its credential; by name.  Raises Unavailable.
        """
        await self._version.check()
        kept = self._visible.get((caller, permission, within))
        if kept is not None and kept[1].holds:
            return kept[0]
        validity = self._version.validity(project_within(within))
        roles, given = await self._read_given(caller, within)
        names = {resource for resource, role, _ in given if permission in roles.get(role, ())}
        found = tuple(Required(permission, name) for name in sorted(names))
        if self._visible_names + len(found) + 1 > MAX_VISIBLE:
            self._visible.clear()
            self._visible_names = 0
        self._visible[caller, permission, within] = (found, validity)
        self._visible_names += len(found) + 1
        return found

    async def projects_of(self, caller: Caller) -> frozenset[str] | None:
        """Returns the projects that the caller may see; None: all of them.  Raises Unavailable.

        As at Google it sees those on which it has resourcemanager.projects.get.  It also sees those in which a
        policy gives a permission to the caller itself, not to everybody, because it would not find what it may use.
        """
        await self._version.check()
        roles, given = await self._read_given(caller, "")
        seen = set()
        for resource, role, is_own in given:
            permissions, project = roles.get(role, frozenset()), project_within(resource)
            if permissions and (is_own or (resource == project and _SEE_PROJECT in permissions)):
                seen.add(project)
        return None if ABOVE_PROJECTS in seen else frozenset(seen)

    async def explain(self, principal: Caller | str, permission: str, resource: str) -> Explanation:
        """Explains why a caller, or a principal by its name in policies, has the permission or lacks it.

        Raises Unavailable.
        """
        await self._version.check()
        if isinstance(principal, str):
            found = find_principal(principal, self._directory.current)
        else:
            found = NamedPrincipal(principal)
        chain = chain_of(self._canonical(resource))
        policies = await self._read_policies(chain)
        roles = await self._read_roles(
            _roles_of(found.caller).union(*(policy.roles for policy in policies.values()))
        )
        explanation = explain(found.caller, permission, resource, chain=chain, policies=policies, roles=roles)
        return replace(explanation, why_nobody=found.why_nobody)

    async def _read_given(
        self, caller: Caller, within: str
    ) -> tuple[Mapping[str, frozenset[str]], Sequence[BoundRole]]:
        """Reads the roles of the caller on resources whose names begin with `within`, and their permissions."""
        given = [
            BoundRole(grant.resource, role, is_own=True)
            for grant in caller.grants
            for role in grant.roles
            if grant.resource.startswith(within)
        ]
        async with self.turn_of(caller.home):
            if not caller.confined:
                async with self._database.transaction() as connection:
                    given += await find_bound_roles(connection, members=caller.members, within=within)
            return await self._read_roles({each.role for each in given}), given

    async def is_open(self) -> bool:
        """Whether any policy gives a role to all users.  Where none does, those without a credential cost no query.

        Raises Unavailable.
        """
        await self._version.check()
        if self._public is None or self._changed or self._reading_public.locked():
            async with self._reading_public:  # for all calls that wait for it
                await self._read_public()
        return bool(self._public)

    def validity(self, required: Iterable[Required]) -> Validity | None:
        """Returns the validity of a decision about all of them; None: it holds for this call alone."""
        projects = {project_within(self._canonical(each.resource)) for each in required} - {ABOVE_PROJECTS}
        if len(projects) > 1 or _ANY_PROJECT in projects:
            return None
        return self._version.validity(projects.pop() if projects else ABOVE_PROJECTS)

    def are_in(self, required: Iterable[Required], projects: Collection[str]) -> bool:
        """Whether a resource of them is in one of the projects."""
        return any(project_within(self._canonical(each.resource)) in projects for each in required)

    async def _note_changes(self, changes: AccessChanges) -> None:
        if changes.projects is None or len(self._changed) >= MAX_POLICIES:
            self._public = None
        else:
            self._changed |= changes.projects

    async def _read_public(self) -> None:
        while self._public is None or self._changed:
            known, changed, self._changed = self._public, self._changed, set()
            if known is None:
                self._public = set()  # None again if everything changes meanwhile
            try:
                async with self._database.transaction() as connection:
                    found = await projects_of_member(
                        connection, member=ALL_USERS, projects=None if known is None else changed
                    )
            except BaseException:
                self._public = None
                raise
            if self._public is not None:
                self._public = found if known is None else (known - changed) | found

    def _known(self, caller: Caller, permission: str, resource: str) -> bool | None:
        """Returns a cached decision; None: there is none that still holds."""
        decision = self._decisions.get((caller, permission, resource))
        return decision[0] if decision is not None and decision[1].holds else None

    async def _decide(self, caller: Caller, permission: str, resource: str) -> bool:
        async with self.turn_of(caller.home):
            known = self._known(caller, permission, resource)  # by another call that came before
            return await self._read_decision(caller, permission, resource) if known is None else known

    async def _read_decision(self, caller: Caller, permission: str, resource: str) -> bool:
        canonical = self._canonical(resource)
        project = project_within(canonical)
        validity = self._version.validity(project)
        chain = chain_of(canonical)
        policies = await self._read_policies(chain)
        roles = await self._read_roles(_roles_of(caller).union(*(policy.roles for policy in policies.values())))
        decision = is_allowed(caller, permission, chain, policies, roles)
        if project != _ANY_PROJECT:  # an account of that name may be made in any project
            if len(self._decisions) >= MAX_DECISIONS:
                self._decisions.clear()
            self._decisions[caller, permission, resource] = (decision, validity)
        return decision

    def _canonical(self, resource: str) -> str:
        """The name of a service account that was called by its unique id, or with any project."""
        project, separator, rest = resource.partition("/serviceAccounts/")
        if not separator:
            return resource
        called, slash, key = rest.partition("/")
        accounts = self._directory.current.accounts
        account = accounts.get(called.lower())
        if account is None and called.isdigit():
            account = next((other for other in accounts.values() if other.unique_id == called), None)
        if account is None or project not in (account.project, ANY_PROJECT):
            return resource
        return account.name + slash + key

    async def _read_policies(self, chain: Sequence[str]) -> dict[str, Policy]:
        """Reads the policies of all resources in the chain, as they were at one moment."""
        kept = {name: self._policies.get(name) for name in chain}
        known = {name: each[0] for name, each in kept.items() if each is not None and each[1].holds}
        if len(known) == len(chain):
            return known
        validities = {name: self._version.validity(project_within(name)) for name in chain}
        async with self._database.transaction() as connection:
            found = await find_policies(connection, resources=chain)
        read = {name: found.get(name, NO_POLICY) for name in chain}
        if len(self._policies) >= MAX_POLICIES:
            self._policies.clear()
        self._policies |= {name: (policy, validities[name]) for name, policy in read.items()}
        return read

    async def _read_roles(self, names: set[str] | frozenset[str]) -> dict[str, frozenset[str]]:
        custom = [name for name in names if name not in PREDEFINED_ROLES]
        kept = {name: self._custom_roles.get(name) for name in custom}
        roles = {name: each[0] for name, each in kept.items() if each is not None and each[1].holds}
        missing = [name for name in custom if name not in roles]
        if missing:
            validities = {name: self._version.validity(project_within(name)) for name in missing}
            async with self._database.transaction() as connection:
                found = await find_role_permissions(connection, names=missing)
            roles |= {name: found.get(name, frozenset()) for name in missing}
            if len(self._custom_roles) >= MAX_POLICIES:
                self._custom_roles.clear()
            self._custom_roles |= {name: (roles[name], validities[name]) for name in missing}
        return {**PREDEFINED_ROLES, **roles}


def _roles_of(caller: Caller) -> frozenset[str]:
    """Returns the roles that the credential itself has."""
    return frozenset().union(*(grant.roles for grant in caller.grants))


def _denied(permission: str, resource: str) -> PermissionDenied:
    resource = resource[:300]
    info = {
        "@type": _ERROR_INFO,
        "reason": "IAM_PERMISSION_DENIED",
        "domain": "iam.googleapis.com",
        "metadata": {"permission": permission, "resource": resource},
    }
    return PermissionDenied(
        f"User not authorized to perform this action: permission '{permission}' is needed on resource "
        f"'{resource}' (or it may not exist).",
        details=[info],
    )
