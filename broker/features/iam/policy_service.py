"""Reads, replaces and tests the access policies of resources."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from broker.access.credentials.account_rows import lock_service_accounts
from broker.access.policies.authorizer import Authorizer
from broker.access.policies.explanation import Explanation
from broker.access.policies.policy_rows import find_policies, insert_policy, write_policy
from broker.access.principals.caller import Caller
from broker.access.principals.permissions import PERMISSIONS
from broker.access.principals.policy import (
    ABOVE_PROJECTS,
    MAX_TESTED,
    MAX_TESTED_RESOURCES,
    NO_POLICY,
    Binding,
    Policy,
    check_principal,
    make_etag,
)
from broker.access.principals.service_account import is_own_address
from broker.access.principals.service_agent import is_service_agent
from broker.access.versions.version_rows import raise_access_version
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.features.iam.account_service import ServiceAccountService
from broker.features.iam.resource_rows import find_existing
from broker.features.iam.role_service import check_roles
from broker.model.errors import Aborted, InvalidArgument, NotFound
from broker.model.names import check_project, check_shape, leaf, project_within

_CONFLICT = (
    "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff."
)


GetResource = Callable[[str], Awaitable[object]]  # by its name; raises NotFound


class PolicyService:
    """The policies of projects, of service accounts, and of the other kinds of resources that have policies."""

    def __init__(
        self,
        database: Database,
        authorizer: Authorizer | None,
        *,
        clock: DatabaseClock,
        changed: Callable[[], Awaitable[None]],
        resources: Mapping[str, GetResource],
        service_accounts: ServiceAccountService,
    ) -> None:
        """`authorizer` is None if every caller may do everything: policies are stored then, but have no effect.

        `changed` is awaited after each committed change, and applies it in this process.  `resources`: by kind of
        resource, as in "projects/p/topics/t", the function that gets a resource that may have a policy.
        """
        self._database = database
        self._authorizer = authorizer
        self._clock = clock
        self._changed = changed
        self._service_accounts = service_accounts
        self._resources = resources

    async def get_policy(self, name: str) -> Policy:
        """Returns the policy of a resource; an empty one if it has none.  Raises InvalidArgument, NotFound."""
        resource = await self._resource(name)
        async with self._database.transaction() as connection:
            return (await find_policies(connection, resources=[resource])).get(resource, NO_POLICY)

    async def set_policy(self, name: str, bindings: tuple[Binding, ...], etag: bytes) -> Policy:
        """Replaces the policy of a resource.

        `etag`: that of the policy as the caller read it (empty: the policy is replaced whatever it is).  Raises
        InvalidArgument, NotFound, Aborted (the policy has changed since the caller read it).
        """
        resource = await self._resource(name)
        policy = Policy(bindings, make_etag())
        async with self._database.transaction() as connection:
            emails = _own_emails(policy.members)
            # Accounts are locked before policies, as deletions lock them.
            existing = await lock_service_accounts(connection, emails=emails.values())
            current = (await find_policies(connection, resources=[resource], lock=True)).get(resource)
            if etag and etag != (current or NO_POLICY).etag:
                raise Aborted(_CONFLICT)
            known = (current or NO_POLICY).roles  # one that was deleted since may stay
            await check_roles(connection, resource, policy.roles - known, field="bindings.role")
            _check_accounts(emails, existing, before=(current or NO_POLICY).members)
            if current is not None:
                await write_policy(connection, resource=resource, policy=policy)
            elif not await insert_policy(connection, resource=resource, policy=policy):
                raise Aborted(_CONFLICT)
            projects = [project_within(resource)]
            await raise_access_version(connection, schema=self._database.schema, projects=projects)
        await self._changed()
        return policy

    async def test_permissions(self, caller: Caller, name: str, permissions: Sequence[str]) -> list[str]:
        """Returns those of the permissions that the caller has on a resource; none if it does not exist.

        Raises InvalidArgument.
        """
        _check_tested(permissions)
        if self._authorizer is None:
            return list(permissions)
        try:
            resource = await self._resource(name)
        except NotFound:
            return []
        return (await self._authorizer.allowed(caller, permissions, [resource]))[resource]

    async def test_permissions_on(
        self, caller: Caller, project: str, permissions: Sequence[str], resources: Sequence[str]
    ) -> Mapping[str, Sequence[str]]:
        """Returns those of the permissions that the caller has on each of the resources of a project, or above all
        projects (ABOVE_PROJECTS).

        Executes three statements at most.  Raises InvalidArgument.
        """
        _check_tested(permissions)
        _check_tested_resources(project, resources)
        if self._authorizer is None:
            return dict.fromkeys(resources, permissions)
        others = set(resources) - {project, ABOVE_PROJECTS}
        async with self._authorizer.turn_of(caller.home), self._database.transaction() as connection:
            existing = {project, ABOVE_PROJECTS} | await find_existing(
                connection, names=others, now=self._clock.now()
            )
        held = await self._authorizer.allowed(caller, permissions, [name for name in resources if name in existing])
        return {name: held.get(name, []) for name in resources}

    async def explain(
        self, caller: Caller, principal: str, permission: str, *, project: str, name: str
    ) -> Explanation | None:
        """Explains why a principal has a permission on a resource or lacks it; None: every caller may do
        everything.

        `caller`: if it asks about itself, its groups are taken into account.  Raises InvalidArgument, NotFound.
        """
        principal = check_principal(principal)
        _check_tested([permission])
        if project_within(name) != project:
            raise InvalidArgument(
                f"resource must be the full name of a resource of {project} (resource={name[:300]})."
            )
        resource = await self._resource(name)
        if self._authorizer is None:
            return None
        return await self._authorizer.explain(
            caller if principal == caller.member else principal, permission, resource
        )

    async def _resource(self, name: str) -> str:
        """Returns the canonical name of a resource that exists.  Raises InvalidArgument, NotFound."""
        parts = name.split("/")
        if len(parts) <= 2:
            check_project(name)
            return name
        if parts[2] == "serviceAccounts" and len(parts) == 4:
            return (await self._service_accounts.get_service_account(name)).name
        get_resource = self._resources.get(parts[2])
        if get_resource is None:
            raise NotFound(f"Resource not found (resource={leaf(name)[:300]}).")
        check_shape(name, parts[2])
        await get_resource(name)
        return name


def _check_tested(permissions: Sequence[str]) -> None:
    """Raises InvalidArgument."""
    if len(permissions) > MAX_TESTED:
        raise InvalidArgument(f"At most {MAX_TESTED} permissions are tested at once ({len(permissions)}).")
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise InvalidArgument(f"Permission {permission[:100]} is not valid.")


def _check_tested_resources(project: str, resources: Sequence[str]) -> None:
    """Raises InvalidArgument."""
    check_project(project)
    if len(resources) > MAX_TESTED_RESOURCES:
        raise InvalidArgument(
            f"Permissions are tested on at most {MAX_TESTED_RESOURCES} resources at once "
            f"(resources={len(resources)})."
        )
    for name in resources:
        if name != ABOVE_PROJECTS and (project_within(name) != project or "\0" in name):
            raise InvalidArgument(
                f"resources must be full names of resources of {project} (resources={name[:300]!r})."
            )


def _own_emails(members: Iterable[str]) -> Mapping[str, str]:
    """Returns the members that have addresses in the broker's own domain, with these addresses.

    The broker cannot check other addresses, such as those of Google's service agents.
    """
    accounts = (member for member in members if member.startswith("serviceAccount:"))
    emails = {member: member.partition(":")[2] for member in sorted(accounts)}
    return {
        member: email for member, email in emails.items() if is_own_address(email) and not is_service_agent(email)
    }


def _check_accounts(emails: Mapping[str, str], existing: Collection[str], *, before: Collection[str]) -> None:
    """Raises InvalidArgument for a member without an account, unless the policy had it `before`."""
    for member, email in emails.items():
        if member not in before and email.lower() not in existing:
            raise InvalidArgument(f"Service account {email} does not exist (bindings.members={member}).")
