"""The rows of policies and custom roles."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Text, bindparam, delete, or_, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from broker.access.principals.policy import EVERYBODY, Binding, Policy, make_etag
from broker.access.principals.role import DISABLED
from broker.access.versions.version_rows import raise_access_version
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import custom_roles, policies
from broker.model.names import project_within


async def find_policies(
    connection: ResourceConnection, *, resources: Collection[str], lock: bool = False
) -> dict[str, Policy]:
    """Returns the policies of the resources that have one; `lock`: they are locked until the transaction ends."""
    query = select(policies).where(policies.c.resource.in_(resources))
    rows: Any = await connection.execute(query.with_for_update() if lock else query)
    return {row.resource: Policy(_bindings(row.bindings), row.etag) for row in rows}


async def projects_of_member(
    connection: ResourceConnection, *, member: str, projects: Collection[str] | None
) -> set[str]:
    """The projects in which a policy binds that member, ABOVE_PROJECTS for the policy above them.

    `projects`: only among these; None: among all.
    """
    query = select(policies.c.resource).where(policies.c.bindings.contains([{"members": [member]}]))
    if projects is not None:
        within = (policies.c.resource.startswith(f"{project}/", autoescape=True) for project in projects)
        query = query.where(or_(policies.c.resource.in_(projects), *within))
    return {project_within(resource) for resource in await connection.scalars(query)}


_BOUND = text("""
    SELECT resource, binding ->> 'role' AS role, jsonb_exists_any(binding -> 'members', :own) AS is_own
    FROM policies, jsonb_array_elements(bindings) AS binding
    WHERE resource >= :within AND starts_with(resource, :within)
        AND jsonb_exists_any(binding -> 'members', :members)
    ORDER BY resource
""").bindparams(bindparam("own", type_=ARRAY(Text)), bindparam("members", type_=ARRAY(Text)))


class BoundRole(NamedTuple):
    """A role that the policy of a resource gives.  `is_own`: to a member other than everybody."""

    resource: str
    role: str
    is_own: bool


async def find_bound_roles(
    connection: ResourceConnection, *, members: Collection[str], within: str
) -> Sequence[BoundRole]:
    """The roles that the policies of all resources whose names begin with `within` give these members."""
    values = {
        "members": sorted(members),
        "own": sorted(set(members) - EVERYBODY),
        "within": within,
    }
    return [BoundRole(*row) for row in await connection.execute(_BOUND, values)]


async def write_policy(connection: ResourceConnection, *, resource: str, policy: Policy) -> None:
    values = {"bindings": _json(policy), "etag": policy.etag}
    statement = upsert(policies).values(resource=resource, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["resource"], set_=values))


async def insert_policy(connection: ResourceConnection, *, resource: str, policy: Policy) -> bool:
    """Returns False if there is one already."""
    statement = upsert(policies).values(resource=resource, bindings=_json(policy), etag=policy.etag)
    return await connection.scalar(statement.on_conflict_do_nothing().returning(policies.c.resource)) is not None


async def forget_policy(connection: ResourceConnection, *, schema: str, resource: str) -> None:
    """Deletes the policy of a resource that is created or deleted.

    So a right that was given on another resource of its name does not apply to this one.  Call this as the last
    statement of the transaction: see raise_access_version.
    """
    await forget_policies(connection, schema=schema, resources=[resource])


async def forget_policies(connection: ResourceConnection, *, schema: str, resources: Collection[str]) -> None:
    """Deletes the policies of several resources, as `forget_policy` does that of one."""
    statement = delete(policies).where(policies.c.resource.in_(resources)).returning(policies.c.resource)
    projects = {project_within(resource) for resource in await connection.scalars(statement)}
    if projects:
        await raise_access_version(connection, schema=schema, projects=projects)


async def forget_member(connection: ResourceConnection, *, member: str) -> set[str]:
    """Removes an account that is created or deleted from all bindings.

    So it has no role that was given to another account of its address.  Google binds accounts by their unique ids,
    and keeps `deleted:…?uid=…`, which matches nobody.  The policies that change get new etags, so that a policy
    that was read before is not written back.  Returns the projects of these policies, in which the caller raises
    the version.
    """
    query = select(policies).where(policies.c.bindings.contains([{"members": [member]}]))
    rows: Any = await connection.execute(query.order_by(policies.c.resource).with_for_update())
    projects: set[str] = set()
    for row in rows:
        kept = (replace(one, members=one.members - {member}) for one in _bindings(row.bindings))
        policy = Policy(tuple(one for one in kept if one.members), make_etag())
        await write_policy(connection, resource=row.resource, policy=policy)
        projects.add(project_within(row.resource))
    return projects


async def find_role_permissions(
    connection: ResourceConnection, *, names: Collection[str]
) -> dict[str, frozenset[str]]:
    """The permissions of the custom roles of these names that exist and are not disabled."""
    query = select(custom_roles.c.name, custom_roles.c.permissions)
    query = query.where(
        custom_roles.c.name.in_(names), custom_roles.c.deleted.is_(False), custom_roles.c.stage != DISABLED
    )
    rows: Any = await connection.execute(query)
    return {row.name: frozenset(row.permissions) for row in rows}


def _bindings(stored: list[dict[str, Any]]) -> tuple[Binding, ...]:
    return tuple(Binding(binding["role"], frozenset(binding["members"])) for binding in stored)


def _json(policy: Policy) -> list[dict[str, Any]]:
    return [{"role": binding.role, "members": sorted(binding.members)} for binding in policy.bindings]
