"""A schema in revisions, which the messages of a topic must satisfy (A11)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from secrets import token_hex

from broker.model.errors import InvalidArgument, NotFound
from broker.model.names import check_name, check_shape, leaf
from broker.model.refusals import refuse_nul
from broker.model.schema_settings import Compatibility, SchemaSettings

# Google's limits: https://cloud.google.com/pubsub/quotas#resource_limits
MAX_DEFINITION_BYTES = 307_200
MAX_REVISIONS = 20
MAX_SCHEMAS = 10_000  # a project

AVRO = "AVRO"
PROTOCOL_BUFFER = "PROTOCOL_BUFFER"
JSON = "JSON"  # JSON Schema, an extension: Google's messages have no such type
TYPES = (AVRO, PROTOCOL_BUFFER, JSON)

_REVISION_ID = re.compile(r"[0-9a-f]{8}")


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
    """Checks the definition of a schema, which need not have a name."""
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
    """Returns those of a schema's revisions, the newest first, that a topic accepts.

    Raises NotFound, InvalidArgument.
    """
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


def check_encoding(settings: SchemaSettings, revisions: Sequence[Schema]) -> None:
    """Raises InvalidArgument for an encoding that messages of such a schema do not have."""
    if settings.encoding != "JSON" and any(revision.type == JSON for revision in revisions):
        raise InvalidArgument(
            f"Invalid schema encoding provided (schemaSettings.encoding={settings.encoding}): messages of a schema "
            f"of type {JSON} are in JSON."
        )


def revision_not_found(name: str, revision_id: str) -> NotFound:
    return NotFound(f"Schema revision not found (resource={leaf(name)}@{revision_id[:100]}).")
