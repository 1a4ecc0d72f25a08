"""Rows of `shared_settings`: the settings of projects that their users share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, and_, cast, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from broker.core.catalog.listed_names import is_listed
from broker.core.catalog.page_bytes import bytes_of, cut_to_bytes
from broker.core.viewing.masking_rule import MaskingRule
from broker.db.driver.database import ResourceConnection
from broker.db.driver.locks import lock_name
from broker.db.schema.tables import shared_settings
from broker.features.project_settings.kinds import masking_rule
from broker.model.page import Page

_FIRST = Page(1, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSetting:
    """`definition`: its fields as JSON; `etag` changes with each change."""

    name: str
    definition: Mapping[str, Any]
    etag: str
    created_at: datetime
    updated_at: datetime


async def count_settings(connection: ResourceConnection, *, project: str, collection: str) -> int:
    """Counts the settings of a kind; until the transaction ends no other transaction counts them."""
    await lock_name(connection, f"{project}/{collection}")
    within = is_listed(shared_settings.c.name, project, collection, _FIRST)
    return await connection.scalar(select(func.count()).select_from(shared_settings).where(within)) or 0


async def find_setting(connection: ResourceConnection, *, name: str, lock: bool = False) -> SharedSetting | None:
    query = select(shared_settings).where(shared_settings.c.name == name)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    return None if row is None else SharedSetting(**row._mapping)


async def list_settings(
    connection: ResourceConnection, *, project: str, collection: str, page: Page
) -> tuple[list[SharedSetting], Page]:
    """A page of a project's, by name, and one more if there is one; the page, cut to what is not too large."""
    within = is_listed(shared_settings.c.name, project, collection, page)
    sizes = select(bytes_of(cast(shared_settings.c.definition, Text))).where(within)
    page = await cut_to_bytes(connection, sizes.order_by(shared_settings.c.name), page)
    query = select(shared_settings).where(within).order_by(shared_settings.c.name).limit(page.size + 1)
    return [SharedSetting(**row._mapping) for row in await connection.execute(query)], page


async def write_setting(connection: ResourceConnection, *, setting: SharedSetting) -> None:
    """Writes a setting, in place of one of its name."""
    values = {column.name: getattr(setting, column.name) for column in shared_settings.columns}
    new = insert(shared_settings).values(**values)
    await connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=values))


async def delete_setting(connection: ResourceConnection, *, name: str) -> None:
    await connection.execute(delete(shared_settings).where(shared_settings.c.name == name))


async def read_masking_rules(
    connection: ResourceConnection, *, names: Sequence[str]
) -> Mapping[str, Sequence[MaskingRule]]:
    """Returns the masking rules by the names that `rules_of` gives projects, an empty list where there are none."""
    found: dict[str, list[MaskingRule]] = {name: [] for name in names}
    listed = shared_settings.c.name
    within = [and_(listed > f"{name}/", listed < f"{name}0") for name in names]  # "0" comes after the slash
    query = select(listed, shared_settings.c.definition).where(or_(*within))
    for row in await connection.execute(query.order_by(listed)):
        found[row.name.rpartition("/")[0]].append(masking_rule(row.name, row.definition))
    return found
