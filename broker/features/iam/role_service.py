"""The roles of Google's IAM: a project's own, and the predefined ones."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

from broker.access.policies import role_rows as store
from broker.access.policies.predefined_roles import LISTED_ROLES, predefined_on
from broker.access.principals.permissions import PREDEFINED_ROLES
from broker.access.principals.role import MAX_ROLES, Role, check_role, role_name
from broker.access.versions.version_rows import raise_access_version
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database, ResourceConnection
from broker.features.iam.reference_rows import references_to_role
from broker.model.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from broker.model.names import check_project, project_within
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Safeguards, preview_of_references

Change = Callable[[Role], Role]

_CONFLICT = "There were concurrent changes of the role. Read it again, and change that."


class RoleService:
    """The custom roles of projects, and the predefined roles.

    `changed` is awaited after each committed change, and applies it in this process.
    """

    def __init__(self, database: Database, clock: DatabaseClock, *, changed: Callable[[], Awaitable[None]]) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed

    async def create_role(self, project: str, role_id: str, role: Role) -> Role:
        """Creates a role.  `role` has everything but the name.  Raises InvalidArgument, AlreadyExists,
        ResourceExhausted.
        """
        check_project(project)
        role = replace(role, name=role_name(project, role_id), etag=_new_etag())
        check_role(role)
        async with self._database.transaction() as connection:
            if not await store.insert_role(connection, role=role):
                raise AlreadyExists(f"A role named {role_id} in {project} already exists.")
            if await store.count_roles(connection, project=project) > MAX_ROLES:
                raise ResourceExhausted(f"A project has at most {MAX_ROLES} roles, deleted ones too ({project}).")
            await raise_access_version(connection, schema=self._database.schema, projects=[project])
        await self._changed()
        return role

    async def get_role(self, name: str) -> Role:
        """Returns a role, even if it is deleted.  Raises NotFound."""
        async with self._database.transaction() as connection:
            return await _existing(connection, name)

    async def list_roles(self, project: str, page: Page, *, deleted: bool) -> tuple[Sequence[Role], str]:
        """Returns a page of a project's roles by name, and the token of the next page; `deleted`: with deleted
        roles.
        """
        check_project(project)
        async with self._database.transaction() as connection:
            found = await store.list_roles(connection, project=project, page=page, deleted=deleted)
        return cut_page(found, page.size, lambda role: role.name)

    def get_predefined_role(self, name: str) -> Role:
        """Raises NotFound."""
        role = LISTED_ROLES.get(name)
        if role is None:
            raise _missing(name)
        return role

    def list_predefined_roles(self, page: Page) -> tuple[Sequence[Role], str]:
        """Returns a page of the predefined roles by name, and the token of the next page."""
        return cut_page(predefined_on(page), page.size, lambda role: role.name)

    async def update_role(self, name: str, change: Change, *, etag: bytes) -> Role:
        """Changes a role.  `etag`: that of the role as the caller read it (empty: the role is changed whatever it
        is).

        Raises InvalidArgument, NotFound, FailedPrecondition (it is deleted), Aborted (it has changed since it was
        read).
        """
        return await self._write(name, change, etag=etag)

    async def delete_role(self, name: str, *, etag: bytes, safeguards: Safeguards = UNGUARDED) -> Role:
        """Marks a role as deleted.  It grants nothing from then on; bindings with it stay.

        Raises the errors of `update_role`, NotAsExpected; and Undone (a preview, if the caller asked only for
        that).
        """
        return await self._write(name, lambda role: replace(role, deleted=True), etag=etag, safeguards=safeguards)

    async def undelete_role(self, name: str, *, etag: bytes) -> Role:
        """Restores a deleted role: its bindings have effect again.

        Raises NotFound, FailedPrecondition (it is not deleted), Aborted.
        """
        return await self._write(name, lambda role: replace(role, deleted=False), etag=etag, of_deleted=True)

    async def _write(
        self,
        name: str,
        change: Change,
        *,
        etag: bytes,
        of_deleted: bool = False,
        safeguards: Safeguards = UNGUARDED,
    ) -> Role:
        async with self._database.transaction() as connection:
            role = await _existing(connection, name, lock=True)
            if role.deleted != of_deleted:
                state = "deleted: undelete it first" if role.deleted else "not deleted"
                raise FailedPrecondition(f"The role is {state} (name={name}).")
            if etag and etag != role.etag:
                raise Aborted(_CONFLICT)
            if safeguards.asked:
                references = await references_to_role(connection, name)
                safeguards.settle(preview_of_references(references, time=self._clock.now()))
            role = replace(change(role), etag=_new_etag())
            check_role(role)
            await store.write_role(connection, role=role)
            await raise_access_version(connection, schema=self._database.schema, projects=[project_within(name)])
        await self._changed()
        return role


async def check_roles(connection: ResourceConnection, resource: str, roles: Collection[str], *, field: str) -> None:
    """Raises InvalidArgument for a role that cannot be granted on a resource: unknown, deleted, or of another
    project.  Until the transaction ends the roles are not deleted: a deletion counts what refers to them.
    """
    project = "/".join(resource.split("/")[:2])
    for name in sorted(set(roles) - PREDEFINED_ROLES.keys()):
        role = None
        if name.startswith(f"{project}/roles/"):
            role = await store.find_role(connection, name=name, lock=True, shared=True)
        if role is None or role.deleted:
            raise InvalidArgument(f"Role {name[:200]} is not supported for this resource ({field}).")


async def _existing(connection: ResourceConnection, name: str, *, lock: bool = False) -> Role:
    role = None if "\0" in name else await store.find_role(connection, name=name, lock=lock)
    if role is None:
        raise _missing(name)
    return role


def _missing(name: str) -> NotFound:
    return NotFound(f"The role named {name[:300]} was not found.")


def _new_etag() -> bytes:
    return secrets.token_bytes(8)
