"""Implements the calls about schemas (A11)."""

from collections.abc import Sequence
from dataclasses import replace

from broker.access.policies.policy_rows import forget_policy
from broker.core.context.core import Core
from broker.db.driver.database import ResourceConnection
from broker.features.schemas import rows as payload_schemas
from broker.features.schemas.checking.mismatch import Mismatch
from broker.features.schemas.schema import (
    MAX_REVISIONS,
    MAX_SCHEMAS,
    Schema,
    check_definition,
    check_schema,
    is_revision_id,
    new_revision_id,
    revision_not_found,
    split_revision,
)
from broker.features.schemas.schema_checks import SchemaChecks
from broker.model.errors import Aborted, AlreadyExists, BrokerError, FailedPrecondition, InvalidArgument
from broker.model.names import check_name, check_project, check_shape, leaf, not_found, project_of
from broker.model.page import Page, cut_page
from broker.model.preview import (
    UNGUARDED,
    Preview,
    Reference,
    Referrer,
    Safeguards,
    preview_of_references,
)
from broker.model.schema_settings import ENCODINGS, Compatibility


def schema_not_found(name: str) -> BrokerError:
    """NotFound, or InvalidArgument for a name that no schema can have."""
    return not_found("Schema not found", name, "schemas")


class SchemaService:
    """Google's SchemaService.  Every change is announced to all processes."""

    def __init__(self, core: Core, checks: SchemaChecks) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._checks = checks
        self._admission = core.admission

    async def create_schema(self, wanted: Schema) -> Schema:
        """Raises InvalidArgument, AlreadyExists, ResourceExhausted (a quota, or the project has MAX_SCHEMAS)."""
        check_schema(wanted)
        wanted = await self._checks.prepare(project_of(wanted.name), wanted)
        async with self._database.transaction() as connection:
            schema = await payload_schemas.insert_schema(connection, schema=self._revision(wanted))
            if schema is not None:
                await forget_policy(connection, schema=self._database.schema, resource=schema.name)
                await self._admission.check_count(connection, project_of(schema.name), "schemas", MAX_SCHEMAS)
        if schema is None:
            raise AlreadyExists(f"Schema already exists (resource={leaf(wanted.name)}).")
        return schema

    async def get_schema(self, name: str) -> Schema:
        """Returns a schema at the revision that the name has after an "@", or at the newest.

        Raises InvalidArgument, NotFound.
        """
        async with self._database.transaction() as connection:
            return await _existing(connection, *split_revision(name))

    async def list_schemas(self, project: str, page: Page) -> tuple[Sequence[Schema], str]:
        """A page of a project's schemas by name, and the token of the next page.

        Raises InvalidArgument for a project that cannot be, unless it has schemas.
        """
        async with self._database.transaction() as connection:
            page = await payload_schemas.cut_page_of_schemas(connection, project=project, page=page)
            found = await payload_schemas.list_schemas(connection, project=project, page=page)
        if not found:
            check_project(project)
        return cut_page(found, page.size, lambda schema: schema.name)

    async def list_revisions(self, name: str, page: Page) -> tuple[Sequence[Schema], str]:
        """A page of a schema's revisions, the newest first, and the token of the next page.

        Raises InvalidArgument, NotFound.
        """
        name, _ = split_revision(name)
        async with self._database.transaction() as connection:
            newest = await _existing(connection, name)
            revisions = await payload_schemas.find_revisions(connection, schema_id=newest.schema_id)
        after = page.after.rpartition("@")[2]
        older = [each for each in revisions if not after.isdecimal() or each.number < int(after)]
        return cut_page(older[: page.size + 1], page.size, lambda schema: f"{schema.name}@{schema.number}")

    async def commit_schema(self, name: str, wanted: Schema) -> Schema:
        """Make a new revision.  A compatibility that comes with it is the schema's from then on, for itself too.

        Raises InvalidArgument (also if it is not compatible with the others), NotFound, FailedPrecondition (it has
        MAX_REVISIONS), Aborted (another one was made meanwhile).
        """
        name = _without_revision(name)
        check_definition(wanted)
        wanted = await self._checks.prepare(project_of(name), wanted)
        async with self._database.transaction() as connection:
            newest = await _existing(connection, name)
        await self._check_next(newest, wanted)
        return await self._add_revision(name, wanted, after=newest)

    async def _check_next(self, newest: Schema, wanted: Schema) -> None:
        """Raises InvalidArgument unless a prepared schema may follow the newest revision."""
        async with self._database.transaction() as connection:
            revisions = await payload_schemas.find_revisions(connection, schema_id=newest.schema_id)
        if wanted.type != newest.type:
            raise InvalidArgument(
                f"Invalid schema type (schema.type={wanted.type}): {leaf(newest.name)} is of type {newest.type}, "
                "which all its revisions have."
            )
        compatibility = wanted.compatibility or newest.compatibility or Compatibility.FULL_TRANSITIVE
        await self._checks.check_compatible(project_of(newest.name), wanted, revisions, compatibility)

    async def rollback_schema(self, name: str, revision_id: str) -> Schema:
        """Make a new revision that is a copy of an older one.

        Raises InvalidArgument, NotFound, FailedPrecondition (it has MAX_REVISIONS).
        """
        name = _without_revision(name)
        if not revision_id:
            raise InvalidArgument("The field revisionId is empty: it says which revision to roll back to.")
        return await self._add_revision(name, revision_id)

    async def delete_revision(
        self, name: str, revision_id: str = "", *, safeguards: Safeguards = UNGUARDED
    ) -> Schema:
        """Delete a revision, which is returned.  It is after the "@" of the name, or (deprecated) beside it.

        Raises InvalidArgument (it is the only one), NotFound, FailedPrecondition (a topic names it), NotAsExpected;
        and Undone (what would be affected, if that is all that was asked for).
        """
        name, named = split_revision(name)
        revision_id = named or revision_id
        if not revision_id:
            raise InvalidArgument(
                f"Invalid [schemas] name: (name={name}). A revision must be named: {name}@REVISION."
            )
        async with self._database.transaction() as connection:
            schema_id = await _locked(connection, name)
            schema = await _existing(connection, name, revision_id)
            topic = await payload_schemas.find_bound_topic(connection, schema_id=schema_id, revision_id=revision_id)
            if topic is not None:
                raise FailedPrecondition(
                    f"The revision {revision_id} is the first or the last one that {topic} takes; change its "
                    "schemaSettings first."
                )
            if len(await payload_schemas.find_revisions(connection, schema_id=schema_id)) == 1:
                raise InvalidArgument("Cannot delete last revision. Please use DeleteSchema.")
            if schema.created_at is not None:
                safeguards.check_existed(schema.created_at, f"{name}@{revision_id}")
            safeguards.settle(preview_of_references((), time=self._clock.now()))
            await payload_schemas.delete_revision(connection, number=schema.number)
        await self._wake_ups.announce(name)
        return schema

    async def delete_schema(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Delete a schema; topics that have it take no messages until they have another.

        Returns what would be affected if that is all that was asked for.  Raises NotFound, NotAsExpected.
        """
        name = _without_revision(name)
        async with self._database.transaction() as connection:
            schema_id = await _locked(connection, name)
            if safeguards.asked:
                revisions = await payload_schemas.find_revisions(connection, schema_id=schema_id)
                safeguards.check_existed(min(each.created_at for each in revisions if each.created_at), name)
                using = await payload_schemas.find_topics(connection, schema_id=schema_id)
                references = [Reference(name=topic, referrer=Referrer.TOPIC) for topic in using]
                if preview := safeguards.previewed(preview_of_references(references, time=self._clock.now())):
                    return preview
            topics = await payload_schemas.delete_schema(connection, schema_id=schema_id)
            await forget_policy(connection, schema=self._database.schema, resource=name)
        await self._wake_ups.announce(name, *topics)
        return None

    async def validate_schema(self, project: str, schema: Schema) -> None:
        """Raises InvalidArgument unless the schema could be created, or committed if one of its name exists."""
        check_project(project)
        if schema.name:
            check_name(schema.name, "schemas")
        check_definition(schema)
        wanted = await self._checks.prepare(project, schema)
        if not schema.name:
            return
        async with self._database.transaction() as connection:
            newest = await payload_schemas.find_schema(connection, name=schema.name, revision_id="")
        if newest is not None:
            await self._check_next(newest, wanted)

    async def validate_message(
        self, project: str, name: str, schema: Schema | None, message: bytes, encoding: str
    ) -> None:
        """Check a message against an existing schema (`name`) or one that is given.

        Raises InvalidArgument, NotFound.
        """
        check_project(project)
        if encoding not in ENCODINGS:
            raise InvalidArgument("Invalid schema encoding provided (encoding): it must be JSON or BINARY.")
        if schema is None:
            if not name:
                raise InvalidArgument("Neither name nor schema is given: one of them says what to check against.")
            schema = await self.get_schema(name)
        else:
            check_definition(schema)
            schema = await self._checks.prepare(project, schema)
        try:
            await self._checks.check_message(project, schema, message, encoding)
        except Mismatch as mismatch:
            raise InvalidArgument(
                f"Invalid data in message: Message failed schema validation ({mismatch})."
            ) from mismatch

    def _revision(self, schema: Schema) -> Schema:
        return replace(schema, revision_id=new_revision_id(), created_at=self._clock.now())

    async def _add_revision(self, name: str, wanted: Schema | str, after: Schema | None = None) -> Schema:
        """`wanted`: the new definition, or the id of a revision to copy.  `after`: the newest, if it still is."""
        async with self._database.transaction() as connection:
            schema_id = await _locked(connection, name)
            if after is not None and (await _existing(connection, name)).number != after.number:
                raise Aborted(f"Another revision of {leaf(name)} was made meanwhile; try again.")
            if isinstance(wanted, str):
                wanted = await _existing(connection, name, wanted)
            elif wanted.compatibility is not None:
                compatibility = wanted.compatibility
                await payload_schemas.set_compatibility(
                    connection, schema_id=schema_id, compatibility=compatibility
                )
            if len(await payload_schemas.find_revisions(connection, schema_id=schema_id)) >= MAX_REVISIONS:
                raise FailedPrecondition(
                    f"Schema {leaf(name)} has {MAX_REVISIONS} revisions already; delete one that is not needed "
                    "(deleteRevision)."
                )
            schema = await payload_schemas.insert_revision(
                connection, schema_id=schema_id, schema=self._revision(wanted)
            )
        await self._wake_ups.announce(name)
        return schema


def _without_revision(name: str) -> str:
    check_shape(name, "schemas")
    if "@" in name:
        raise InvalidArgument(f"Invalid [schemas] name: (name={name[:300]}). This call names no revision.")
    return name


async def _locked(connection: ResourceConnection, name: str) -> int:
    schema_id = await payload_schemas.lock_schema(connection, name=name)
    if schema_id is None:
        raise schema_not_found(name)
    return schema_id


async def _existing(connection: ResourceConnection, name: str, revision_id: str = "") -> Schema:
    if not revision_id or is_revision_id(revision_id):
        schema = await payload_schemas.find_schema(connection, name=name, revision_id=revision_id)
        if schema is not None:
            return schema
    if revision_id and await payload_schemas.find_schema(connection, name=name) is not None:
        raise revision_not_found(name, revision_id)
    raise schema_not_found(name)
