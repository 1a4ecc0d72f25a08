"""The rows of API keys."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import delete, func, insert, or_, select

from broker.access.principals.api_key import ApiKey
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import api_keys
from broker.model.page import Page

_API_KEY = select(api_keys)


def _api_key(row: Any) -> ApiKey:
    return ApiKey(**row._mapping)


def _bounds(project: str) -> tuple[str, str]:
    """Names of the project's keys lie between these two."""
    return f"{project}/apiKeys/", f"{project}/apiKeys0"


async def insert_api_key(connection: ResourceConnection, *, key: ApiKey) -> None:
    values = {column.name: getattr(key, column.name) for column in api_keys.columns}
    await connection.execute(insert(api_keys).values(values))


async def count_api_keys(connection: ResourceConnection, *, project: str) -> int:
    first, last = _bounds(project)
    query = select(func.count()).select_from(api_keys).where(api_keys.c.name > first, api_keys.c.name < last)
    return await connection.scalar(query) or 0


async def find_api_key(connection: ResourceConnection, *, name: str) -> ApiKey | None:
    row = (await connection.execute(_API_KEY.where(api_keys.c.name == name))).one_or_none()
    return None if row is None else _api_key(row)


async def list_api_keys(connection: ResourceConnection, *, project: str, page: Page) -> list[ApiKey]:
    """Lists a page of a project's keys, by name, and one more."""
    first, last = _bounds(project)
    query = _API_KEY.where(api_keys.c.name > max(page.after, first), api_keys.c.name < last)
    rows = await connection.execute(query.order_by(api_keys.c.name).limit(page.size + 1))
    return [_api_key(row) for row in rows]


async def delete_api_key(connection: ResourceConnection, *, name: str) -> bool:
    """Returns whether there was such a key."""
    return (await connection.execute(delete(api_keys).where(api_keys.c.name == name))).rowcount == 1


async def all_api_keys(connection: ResourceConnection, *, projects: Collection[str] | None) -> list[ApiKey]:
    """Lists the API keys of the projects; None: of all projects."""
    query = _API_KEY
    if projects is not None:
        # Not by _bounds: a revoked key must be missing whatever the collation of the database is.
        query = query.where(
            or_(*(api_keys.c.name.startswith(f"{project}/apiKeys/", autoescape=True) for project in projects))
        )
    return [_api_key(row) for row in await connection.execute(query)]
