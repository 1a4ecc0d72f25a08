"""The schema settings of a topic, and the parameters of schema calls beyond Google's messages (A11)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from broker.model.errors import InvalidArgument
from broker.model.names import check_shape

DELETED_SCHEMA = "_deleted-schema_"  # what a topic shows once its schema is gone (Google's spec)
ENCODINGS = ("JSON", "BINARY")
Revision = TypeVar("Revision")


class Compatibility(StrEnum):
    """The compatibility that a commit must preserve, in the words of schema registries.

    FULL_TRANSITIVE is what Google requires.  BACKWARD: the new revision reads messages of the one before.  FORWARD:
    that one reads messages of the new one.  FULL: both.  TRANSITIVE: the same with all revisions.
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

    def compared(self, revisions: Sequence[Revision]) -> Sequence[Revision]:
        """Returns those of a schema's revisions, the newest first, with which a new one is compared."""
        if self is Compatibility.NONE:
            return ()
        return revisions if self.endswith("TRANSITIVE") else revisions[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSettings:
    """The schema that the messages of a topic are checked against: its revisions from the first to the last.

    `schema` is the full name, or DELETED_SCHEMA; a revision "": no bound.  The settings of a call have no
    `schema_id`.
    """

    schema: str
    encoding: str
    first_revision_id: str = ""
    last_revision_id: str = ""
    schema_id: int = 0


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The options of a schema that Google's message does not have: other types, and the compatibility."""

    type: str = ""
    compatibility: Compatibility | None = None


NO_OPTIONS = SchemaOptions()


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
