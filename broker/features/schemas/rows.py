"""Rows of `payload_schemas` and of their revisions."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, Row, Select, Text, any_, delete, func, insert, literal, select
from sqlalchemy.dialects.postgresql import insert as pg_insert

from broker.core.catalog.listed_names import is_listed
from broker.core.catalog.page_bytes import bytes_of, cut_to_bytes
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import payload_schema_revisions, payload_schemas, topics
from broker.features.schemas.schema import Schema
from broker.model.page import Page
from broker.model.schema_settings import Compatibility

_SCHEMAS, _REVISIONS = payload_schemas.c, payload_schema_revisions.c
_SCHEMA: Select[Any] = select(payload_schemas, payload_schema_revisions).join(
    payload_schema_revisions, _REVISIONS.schema_id == _SCHEMAS.schema_id
)
_EACH = payload_schema_revisions.alias("each").c
_NEWEST = select(func.max(_EACH.number)).where(_EACH.schema_id == _SCHEMAS.schema_id).scalar_subquery()


def _schema(row: Row[Any]) -> Schema:
    return Schema(
        schema_id=row.schema_id,
        number=row.number,
        name=row.name,
        type=row.type,
        compatibility=Compatibility(row.compatibility or Compatibility.FULL_TRANSITIVE),
        definition=row.definition,
        compiled=row.compiled or b"",
        root_message=row.root_message or "",
        revision_id=row.revision_id,
        created_at=row.created_at,
    )


async def insert_schema(connection: ResourceConnection, *, schema: Schema) -> Schema | None:
    """Create a schema with its first revision; None if the name is taken."""
    schema_id = await connection.scalar(
        pg_insert(payload_schemas)
        .values(name=schema.name, type=schema.type, compatibility=schema.compatibility)
        .on_conflict_do_nothing()
        .returning(_SCHEMAS.schema_id)
    )
    if schema_id is None:
        return None
    return await insert_revision(connection, schema_id=schema_id, schema=schema)


async def insert_revision(connection: ResourceConnection, *, schema_id: int, schema: Schema) -> Schema:
    """Add a revision, which is the newest."""
    number = await connection.scalar(
        insert(payload_schema_revisions)
        .values(
            schema_id=schema_id,
            revision_id=schema.revision_id,
            definition=schema.definition,
            compiled=schema.compiled or None,
            root_message=schema.root_message or None,
            created_at=schema.created_at,
        )
        .returning(_REVISIONS.number)
    )
    return _schema((await connection.execute(_SCHEMA.where(_REVISIONS.number == number))).one())


async def set_compatibility(
    connection: ResourceConnection, *, schema_id: int, compatibility: Compatibility
) -> None:
    """Sets the compatibility of a schema, for later commits."""
    where = _SCHEMAS.schema_id == schema_id
    await connection.execute(payload_schemas.update().where(where).values(compatibility=compatibility))


async def lock_schema(connection: ResourceConnection, *, name: str, share: bool = False) -> int | None:
    """The id of the schema of this name, whose revisions (`share`: which) stay until the transaction ends."""
    locked = select(_SCHEMAS.schema_id).where(_SCHEMAS.name == name).with_for_update(read=share)
    schema_id: int | None = await connection.scalar(locked)
    return schema_id


async def find_schema(connection: ResourceConnection, *, name: str, revision_id: str = "") -> Schema | None:
    """A schema at a revision, or ("") at its newest one."""
    which = _REVISIONS.revision_id == revision_id if revision_id else _REVISIONS.number == _NEWEST
    row = (await connection.execute(_SCHEMA.where(_SCHEMAS.name == name, which))).one_or_none()
    return None if row is None else _schema(row)


async def find_revisions(connection: ResourceConnection, *, schema_id: int) -> list[Schema]:
    """Finds all revisions of a schema, the newest first."""
    rows = await connection.execute(
        _SCHEMA.where(_SCHEMAS.schema_id == schema_id).order_by(_REVISIONS.number.desc())
    )
    return [_schema(row) for row in rows]


async def find_all_revisions(
    connection: ResourceConnection, *, names: Sequence[str]
) -> dict[str, Sequence[Schema]]:
    """The revisions of the schemas of these names, the newest first, as far as they exist."""
    these = _SCHEMAS.name == any_(literal(names, ARRAY(Text)))
    found: dict[str, list[Schema]] = {}
    for row in await connection.execute(_SCHEMA.where(these).order_by(_REVISIONS.number.desc())):
        found.setdefault(row.name, []).append(_schema(row))
    return dict(found)


async def list_schemas(connection: ResourceConnection, *, project: str, page: Page) -> list[Schema]:
    """Lists a page of a project's schemas, by name, and one more, each at its newest revision."""
    rows = await connection.execute(_listed(_SCHEMA, project, page).limit(page.size + 1))
    return [_schema(row) for row in rows]


async def cut_page_of_schemas(connection: ResourceConnection, *, project: str, page: Page) -> Page:
    """A page that is not too large in bytes."""
    sizes = _SCHEMA.with_only_columns(bytes_of(_REVISIONS.definition, _REVISIONS.compiled))
    return await cut_to_bytes(connection, _listed(sizes, project, page), page)


def _listed(query: Select[Any], project: str, page: Page) -> Select[Any]:
    """Restricts a query to the schemas of a project, from a page on, by name, each at its newest revision."""
    listed = is_listed(_SCHEMAS.name, project, "schemas", page)
    return query.where(listed, _REVISIONS.number == _NEWEST).order_by(_SCHEMAS.name)


async def delete_revision(connection: ResourceConnection, *, number: int) -> None:
    await connection.execute(delete(payload_schema_revisions).where(_REVISIONS.number == number))


async def delete_schema(connection: ResourceConnection, *, schema_id: int) -> Sequence[str]:
    """Delete a schema and its revisions.  Returns the names of the topics that have it."""
    await connection.execute(delete(payload_schemas).where(_SCHEMAS.schema_id == schema_id))
    await connection.execute(delete(payload_schema_revisions).where(_REVISIONS.schema_id == schema_id))
    return await find_topics(connection, schema_id=schema_id)


async def find_topics(connection: ResourceConnection, *, schema_id: int) -> Sequence[str]:
    """Returns the names of the topics that have a schema."""
    names = select(topics.c.name).where(topics.c.schema_id == schema_id).order_by(topics.c.name)
    return (await connection.scalars(names)).all()


async def find_bound_topic(connection: ResourceConnection, *, schema_id: int, revision_id: str) -> str | None:
    """A topic that takes messages from this revision on, or up to it."""
    bound = (topics.c.first_revision_id == revision_id) | (topics.c.last_revision_id == revision_id)
    query = select(topics.c.name).where(topics.c.schema_id == schema_id, bound).order_by(topics.c.name).limit(1)
    name: str | None = await connection.scalar(query)
    return name
