"""Imports: messages of a caller, stored part by part, each once however often it is sent (G2)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.publish_limits import MAX_MESSAGES

MAX_PART = 1_000_000  # of an import, so that who sends them ends some day
_IMPORT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an import: messages of any ordering keys, under a number from 1 on.

    `expires`: they have a time to live from now on, as in a publish; else they do not expire.
    """

    import_id: str
    number: int
    messages: Sequence[NewMessage]
    expires: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """`repeated`: the part had been stored before; nothing was stored now.  `expires`: whether messages have a time
    to live; None: the topic does not have them expire, or it was not asked now.
    """

    message_count: int
    repeated: bool = False
    expires: bool | None = None


def check_part(part: Part) -> None:
    """Raises InvalidArgument for a part that cannot be stored, whatever its messages are."""
    if not _IMPORT_ID.fullmatch(part.import_id):
        raise InvalidArgument(
            "importId must begin with a letter or digit, and be up to 100 letters, digits, dots, dashes and "
            f"underscores (importId={part.import_id[:100]})."
        )
    if not 1 <= part.number <= MAX_PART:
        raise InvalidArgument(f"part must be from 1 to {MAX_PART:,} (part={part.number}).")
    if not part.messages:
        raise InvalidArgument("The part has no message: its body is a line of JSON, or a record of Avro, for each.")
    if len(part.messages) > MAX_MESSAGES:
        raise too_many_messages(f"{len(part.messages):,}")


def too_many_messages(count: str) -> InvalidArgument:
    return InvalidArgument(f"The part has {count} messages, the maximum is {MAX_MESSAGES:,}.")
