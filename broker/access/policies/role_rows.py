"""The rows of custom roles."""

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from broker.access.principals.role import Role
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import custom_roles
from broker.model.page import Page


def _role(row: Any) -> Role:
    return Role(**(dict(row._mapping) | {"permissions": frozenset(row.permissions)}))


def _values(role: Role) -> dict[str, Any]:
    values = {column.name: getattr(role, column.name) for column in custom_roles.columns}
    return values | {"permissions": sorted(role.permissions)}


async def insert_role(connection: ResourceConnection, *, role: Role) -> bool:
    """Returns False if the name is taken, be it by a deleted role."""
    statement = upsert(custom_roles).values(_values(role)).on_conflict_do_nothing()
    return await connection.scalar(statement.returning(custom_roles.c.name)) is not None


async def find_role(
    connection: ResourceConnection, *, name: str, lock: bool = False, shared: bool = False
) -> Role | None:
    """A deleted one, too; `lock`: kept from changing until the transaction ends, which (`shared`) others may lock
    likewise.
    """
    query = select(custom_roles).where(custom_roles.c.name == name)
    row = (await connection.execute(query.with_for_update(read=shared) if lock else query)).one_or_none()
    return None if row is None else _role(row)


async def write_role(connection: ResourceConnection, *, role: Role) -> None:
    """Updates a role that exists."""
    await connection.execute(update(custom_roles).where(custom_roles.c.name == role.name).values(_values(role)))


async def count_roles(connection: ResourceConnection, *, project: str) -> int:
    """The deleted ones count."""
    of_project = custom_roles.c.name.startswith(f"{project}/roles/", autoescape=True)
    return await connection.scalar(select(func.count()).select_from(custom_roles).where(of_project)) or 0


async def list_roles(connection: ResourceConnection, *, project: str, page: Page, deleted: bool) -> list[Role]:
    """Lists a page of a project's roles, by name, and one more; `deleted`: with deleted ones."""
    of_project = custom_roles.c.name.startswith(f"{project}/roles/", autoescape=True)
    query = select(custom_roles).where(of_project, custom_roles.c.name > page.after)
    if not deleted:
        query = query.where(custom_roles.c.deleted.is_(False))
    rows = await connection.execute(query.order_by(custom_roles.c.name).limit(page.size + 1))
    return [_role(row) for row in rows]
