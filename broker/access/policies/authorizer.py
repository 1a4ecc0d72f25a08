"""Whether a caller may.

What was decided is known until the version changes: the calls that follow cost a look into a dictionary for each
permission.  Policies are read when they are first asked for, with those of what the resource is in.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.access.credentials.directory import CredentialDirectory
from broker.access.version import AccessVersion
from broker.domain.caller import ALL_USERS, Caller
from broker.domain.errors import PermissionDenied
from broker.domain.permissions import PREDEFINED_ROLES
from broker.domain.policy import NO_POLICY, Policy, chain_of, is_allowed
from broker.domain.service_account import ANY_PROJECT
from broker.store.access.policies import find_policies, find_role_permissions, is_member_anywhere
from broker.store.access.version import Versions
from broker.store.driver.database import Database

MAX_DECISIONS, MAX_POLICIES = 50_000, 20_000
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class Required(NamedTuple):
    """A permission on a resource.  `shown`: what the caller called it, where that is another name."""

    permission: str
    resource: str
    shown: str = ""


class Authorizer:
    """What it knows is dropped before a new version counts as known."""

    def __init__(self, database: Database, version: AccessVersion, directory: CredentialDirectory) -> None:
        self._database = database
        self._version = version
        self._directory = directory
        self._generation = 0  # of what is known
        self._decisions: dict[tuple[Caller, str, str], bool] = {}
        self._policies: dict[str, Policy] = {}
        self._custom_roles: dict[str, frozenset[str]] = {}
        self._is_open: bool | None = None
        version.before_change(self._forget)

    async def check(self, caller: Caller, required: Sequence[Required]) -> None:
        """Raises PermissionDenied, and Unavailable where that cannot be known now."""
        if not self._version.is_fresh:
            await self._version.check()
        for permission, resource, shown in required:
            allowed = self._decisions.get((caller, permission, resource))
            if allowed is None:
                allowed = await self._decide(caller, permission, resource)
            if not allowed:
                raise _denied(permission, shown or resource)

    async def allowed(self, caller: Caller, permissions: Sequence[str], resource: str) -> list[str]:
        """Those of the permissions that the caller has.  Raises Unavailable."""
        await self._version.check()
        return [name for name in permissions if await self._decide(caller, name, resource)]

    async def is_open(self) -> bool:
        """Whether any policy gives a role to all users.  Where none does, those without a credential cost no look.

        Raises Unavailable.
        """
        await self._version.check()
        if self._is_open is not None:
            return self._is_open
        generation = self._generation
        async with self._database.transaction() as connection:
            found = await is_member_anywhere(connection, member=ALL_USERS)
        if generation == self._generation:
            self._is_open = found
        return found

    async def _forget(self, versions: Versions) -> None:
        self._generation += 1
        self._decisions.clear()
        self._policies.clear()
        self._custom_roles.clear()
        self._is_open = None

    async def _decide(self, caller: Caller, permission: str, resource: str) -> bool:
        generation = self._generation
        chain = chain_of(self._canonical(resource))
        policies = await self._read_policies(chain)
        names = {role for policy in policies.values() for role in policy.roles}
        roles = await self._read_roles(names.union(*(grant.roles for grant in caller.grants)))
        decision = is_allowed(caller, permission, chain, policies, roles)
        if generation == self._generation:  # else it may rest on what was so before
            if len(self._decisions) >= MAX_DECISIONS:
                self._decisions.clear()
            self._decisions[caller, permission, resource] = decision
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
        missing = [name for name in chain if name not in self._policies]
        if missing:
            generation = self._generation
            async with self._database.transaction() as connection:
                found = await find_policies(connection, resources=missing)
            read = {name: found.get(name, NO_POLICY) for name in missing}
            known = {name: self._policies[name] for name in chain if name in self._policies}
            if generation != self._generation:
                return await self._read_policies(chain)
            if len(self._policies) >= MAX_POLICIES:
                self._policies.clear()
            self._policies |= read
            return read | known
        return {name: self._policies[name] for name in chain}

    async def _read_roles(self, names: set[str] | frozenset[str]) -> dict[str, frozenset[str]]:
        custom = [name for name in names if name not in PREDEFINED_ROLES]
        missing = [name for name in custom if name not in self._custom_roles]
        found: dict[str, frozenset[str]] = {}
        if missing:
            generation = self._generation
            async with self._database.transaction() as connection:
                found = await find_role_permissions(connection, names=missing)
            if generation == self._generation:
                self._custom_roles |= {name: found.get(name, frozenset()) for name in missing}
        known = {name: self._custom_roles[name] for name in custom if name in self._custom_roles}
        return {**PREDEFINED_ROLES, **known, **found}


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
