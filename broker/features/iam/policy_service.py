"""Access policies of resources: read, replaced, tried."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from broker.access.credentials.account_rows import find_service_account
from broker.access.policies.authorizer import Authorizer
from broker.access.policies.policy_rows import find_policies, insert_policy, write_policy
from broker.access.principals.caller import Caller
from broker.access.principals.permissions import PERMISSIONS
from broker.access.principals.policy import MAX_TESTED, NO_POLICY, Binding, Policy, make_etag
from broker.access.principals.service_account import is_own_address
from broker.access.principals.service_agent import is_service_agent
from broker.access.versions.version_rows import raise_access_version
from broker.db.driver.database import Database, ResourceConnection
from broker.features.iam.account_service import ServiceAccountService
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
        changed: Callable[[], Awaitable[None]],
        resources: Mapping[str, GetResource],
        service_accounts: ServiceAccountService,
    ) -> None:
        """`authorizer` is None where anybody may do anything: policies are stored then, and have no effect.

        `changed` is awaited after each change that was committed, and makes it hold in this process.  `resources`:
        by kind, as in "projects/p/topics/t", what gets a resource that may have a policy.
        """
        self._database = database
        self._authorizer = authorizer
        self._changed = changed
        self._service_accounts = service_accounts
        self._resources = resources

    async def get_policy(self, name: str) -> Policy:
        """An empty one for a resource that has none.  Raises InvalidArgument, NotFound."""
        resource = await self._resource(name)
        async with self._database.transaction() as connection:
            return (await find_policies(connection, resources=[resource])).get(resource, NO_POLICY)

    async def set_policy(self, name: str, bindings: tuple[Binding, ...], etag: bytes) -> Policy:
        """Replace it.  `etag`: that of the policy as the caller read it; empty: whatever it is now.

        Raises InvalidArgument, NotFound, Aborted (it has changed meanwhile).
        """
        resource = await self._resource(name)
        policy = Policy(bindings, make_etag())
        async with self._database.transaction() as connection:
            current = (await find_policies(connection, resources=[resource], lock=True)).get(resource)
            if etag and etag != (current or NO_POLICY).etag:
                raise Aborted(_CONFLICT)
            known = (current or NO_POLICY).roles  # one that was deleted since may stay
            await check_roles(connection, resource, policy.roles - known, field="bindings.role")
            await _check_accounts(connection, policy.members - (current or NO_POLICY).members)
            if current is not None:
                await write_policy(connection, resource=resource, policy=policy)
            elif not await insert_policy(connection, resource=resource, policy=policy):
                raise Aborted(_CONFLICT)
            projects = [project_within(resource)]
            await raise_access_version(connection, schema=self._database.schema, projects=projects)
        await self._changed()
        return policy

    async def test_permissions(self, caller: Caller, name: str, permissions: Sequence[str]) -> list[str]:
        """Those that the caller has; none on a resource that does not exist.  Raises InvalidArgument."""
        if len(permissions) > MAX_TESTED:
            raise InvalidArgument(f"At most {MAX_TESTED} permissions are tested at once ({len(permissions)}).")
        for permission in permissions:
            if permission not in PERMISSIONS:
                raise InvalidArgument(f"Permission {permission[:100]} is not valid.")
        if self._authorizer is None:
            return list(permissions)
        try:
            resource = await self._resource(name)
        except NotFound:
            return []
        return await self._authorizer.allowed(caller, permissions, resource)

    async def _resource(self, name: str) -> str:
        """The one name of a resource that exists.  Raises InvalidArgument, NotFound."""
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


async def _check_accounts(connection: ResourceConnection, members: frozenset[str]) -> None:
    """Raises InvalidArgument for addresses of the broker's own domain that belong to no account.

    Whether any other address exists, such as that of one of Google's service agents, cannot be known here.
    """
    for member in sorted(members):
        kind, _, email = member.partition(":")
        if kind != "serviceAccount" or not is_own_address(email) or is_service_agent(email):
            continue
        if await find_service_account(connection, email=email) is None:
            raise InvalidArgument(f"Service account {email} does not exist (bindings.members={member}).")
