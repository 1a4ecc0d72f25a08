"""Validates the schema settings of a topic when they change."""

from dataclasses import replace

from broker.core.resources.resource_field import ResourceField
from broker.db.driver.database import ResourceConnection
from broker.features.schemas.rows import find_revisions, lock_schema
from broker.features.schemas.schema import check_encoding, within
from broker.model.errors import NotFound
from broker.model.schema_settings import DELETED_SCHEMA
from broker.model.topic import Topic


async def _with_schema(connection: ResourceConnection, topic: Topic, current: Topic | None) -> Topic:
    """The topic with the id of its schema, which stays until the transaction ends.

    Raises NotFound (no such schema or revision), InvalidArgument (revisions in the wrong order).
    """
    settings, before = topic.schema_settings, None if current is None else current.schema_settings
    if settings is None or settings == before:
        return topic
    if before is not None and settings.schema == before.schema == DELETED_SCHEMA:
        return replace(topic, schema_settings=replace(settings, schema_id=before.schema_id))
    schema_id = await lock_schema(connection, name=settings.schema, share=True)
    if schema_id is None:
        raise NotFound(f"Schema could not be found (schemaSettings.schema={settings.schema[:300]}).")
    revisions = await find_revisions(connection, schema_id=schema_id)
    within(settings, revisions)
    check_encoding(settings, revisions)
    return replace(topic, schema_settings=replace(settings, schema_id=schema_id))


TOPIC_FIELD = ResourceField(path="schema_settings", resolve=_with_schema)
