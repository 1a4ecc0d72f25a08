"""A schema: what the messages of a topic must be like, in revisions (A11)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from secrets import token_hex

from broker.domain.errors import InvalidArgument, NotFound
from broker.domain.names import check_name, check_shape, leaf
from broker.domain.refusals import refuse_nul

# Google's limits: https://cloud.google.com/pubsub/quotas#resource_limits
MAX_DEFINITION_BYTES = 307_200
MAX_REVISIONS = 20
MAX_SCHEMAS = 10_000  # a project

DELETED_SCHEMA = "_deleted-schema_"  # what a topic shows once its schema is gone (Google's spec)
AVRO = "AVRO"
PROTOCOL_BUFFER = "PROTOCOL_BUFFER"
JSON = "JSON"  # JSON Schema, an extension: Google's messages have no such type
TYPES = (AVRO, PROTOCOL_BUFFER, JSON)
ENCODINGS = ("JSON", "BINARY")

_REVISION_ID = re.compile(r"[0-9a-f]{8}")


class Compatibility(StrEnum):
    """What a commit is asked for, in the words of schema registries.  FULL_TRANSITIVE is what Google asks.

    BACKWARD: the new revision reads messages of the one before.  FORWARD: that one reads messages of the new one.
    FULL: both.  TRANSITIVE: so with all revisions.
    """

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"

    @property
    def new_reads_old(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))

    def compared(self, revisions: "Sequence[Schema]") -> "Sequence[Schema]":
        """Those of a schema's revisions, the newest first, with which a new one is compared."""
        if self is Compatibility.NONE:
            return ()
        return revisions if self.endswith("TRANSITIVE") else revisions[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSettings:
    """What the messages of a topic are checked against: a schema's revisions from the first to the last.

    `schema` is the full name, or DELETED_SCHEMA; a revision "": no bound.  What a call wants has no `schema_id`.
    """

    schema: str
    encoding: str
    first_revision_id: str = ""
    last_revision_id: str = ""
    schema_id: int = 0


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """What a call says of a schema beyond Google's message: a type that is not Google's, the compatibility."""

    type: str = ""
    compatibility: Compatibility | None = None


NO_OPTIONS = SchemaOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema at one of its revisions.

    `name` is the full resource name without the revision, `type` one of TYPES.  `compatibility` is the schema's;
    None in what a call wants: as it is, or for a new one Google's.  `number` says which revision is newer.
    Protobuf's are `compiled`, a FileDescriptorSet in which `root_message` is the name of the message; without a
    definition they were given so.  What a call wants to be made has no ids, no number and no `created_at` (when the
    revision was made).
    """

    schema_id: int = 0
    number: int = 0
    name: str
    type: str
    compatibility: Compatibility | None = None
    definition: str = ""
    compiled: bytes = b""
    root_message: str = ""
    revision_id: str = ""
    created_at: datetime | None = None

    @property
    def revision_name(self) -> str:
        """ "projects/p/schemas/s@0123abcd", as calls name a revision."""
        return f"{self.name}@{self.revision_id}"


def is_revision_id(text: str) -> bool:
    """Whether a revision can have this id."""
    return _REVISION_ID.fullmatch(text) is not None


def new_revision_id() -> str:
    return token_hex(4)  # Google's have 8 hexadecimal digits


def split_revision(name: str) -> tuple[str, str]:
    """The name of a schema, and the revision after the "@" ("": none).  Raises InvalidArgument."""
    schema, at, revision_id = name.partition("@")
    check_shape(schema, "schemas")
    if at and not revision_id:
        raise InvalidArgument(f"Invalid [schemas] name: (name={name[:300]}). A revision id must follow the @.")
    return schema, revision_id


def check_schema(schema: Schema) -> None:
    """Raises InvalidArgument for a name, a type or a length that no schema can have."""
    check_name(schema.name, "schemas")
    check_definition(schema)


def check_definition(schema: Schema) -> None:
    """The same of a schema that need not have a name."""
    if schema.type not in TYPES:
        raise InvalidArgument(
            f"Invalid schema type (schema.type={schema.type or 'TYPE_UNSPECIFIED'}): it must be one of "
            f"{', '.join(TYPES)}."
        )
    size = len(schema.definition.encode()) or len(schema.compiled)
    if schema.compiled and (schema.definition or schema.type != PROTOCOL_BUFFER):
        raise InvalidArgument(
            f"The field schema.compiledProtoSchema is for schemas of type {PROTOCOL_BUFFER} without a definition."
        )
    if schema.compiled and not schema.root_message:
        raise InvalidArgument("The field schema.compiledProtoSchema.rootMessage is empty: it names the message.")
    if not size:
        raise InvalidArgument("The field schema.definition is empty: a schema needs a definition.")
    if size > MAX_DEFINITION_BYTES:
        raise InvalidArgument(
            f"The field schema.definition is too long: {size} bytes, the maximum is {MAX_DEFINITION_BYTES}."
        )
    refuse_nul(schema.definition, "schema.definition")
    refuse_nul(schema.root_message, "schema.compiledProtoSchema.rootMessage")


def within(settings: SchemaSettings, revisions: Sequence[Schema]) -> Sequence[Schema]:
    """Those of a schema's revisions, the newest first, that a topic takes.  Raises NotFound, InvalidArgument."""
    numbers = {revision.revision_id: revision.number for revision in revisions}
    for bound in (settings.first_revision_id, settings.last_revision_id):
        if bound and bound not in numbers:
            raise revision_not_found(settings.schema, bound)
    first, last = numbers.get(settings.first_revision_id, 0), numbers.get(settings.last_revision_id, inf)
    if first > last:
        raise InvalidArgument(
            f"The revision schemaSettings.firstRevisionId ({settings.first_revision_id}) is newer than "
            f"schemaSettings.lastRevisionId ({settings.last_revision_id})."
        )
    return [revision for revision in revisions if first <= revision.number <= last]


def check_settings(settings: SchemaSettings) -> None:
    """Raises InvalidArgument for settings that no topic can have."""
    if not settings.schema:
        raise InvalidArgument("The field schemaSettings.schema is empty: it names the schema.")
    if settings.schema != DELETED_SCHEMA:
        check_shape(settings.schema, "schemas")
    if settings.encoding not in ENCODINGS:
        raise InvalidArgument(
            "Invalid schema encoding provided (schemaSettings.encoding): it must be JSON or BINARY."
        )


def check_encoding(settings: SchemaSettings, revisions: Sequence[Schema]) -> None:
    """Raises InvalidArgument for an encoding that messages of such a schema do not have."""
    if settings.encoding != "JSON" and any(revision.type == JSON for revision in revisions):
        raise InvalidArgument(
            f"Invalid schema encoding provided (schemaSettings.encoding={settings.encoding}): messages of a schema "
            f"of type {JSON} are in JSON."
        )


def revision_not_found(name: str, revision_id: str) -> NotFound:
    return NotFound(f"Schema revision not found (resource={leaf(name)}@{revision_id[:100]}).")
