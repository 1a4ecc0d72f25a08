"""Imports: messages that a caller has, stored part by part, each part once however often it is sent (G2)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from broker.domain.copying import SCHEMA_KEYS
from broker.domain.errors import BrokerError, InvalidArgument
from broker.domain.message import NewMessage
from broker.domain.publish_limits import MAX_ATTRIBUTE_VALUE_BYTES, MAX_MESSAGES, check_messages

MAX_PART = 1_000_000  # of an import, so that who sends them ends some day
_IMPORT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Part:
    """So many messages, of any ordering keys, under a number from 1 on."""

    import_id: str
    number: int
    messages: Sequence[NewMessage]


@dataclass(frozen=True, slots=True)
class Imported:
    """`repeated`: the part had been stored before; nothing was stored now."""

    message_count: int
    repeated: bool = False


def check_part(part: Part) -> None:
    """Raises InvalidArgument for what no publish may have, by its line among those that are not empty."""
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
    for number, message in enumerate(part.messages, 1):
        try:
            check_messages([without_schema(message)])
            _check_schema_words(message)
        except BrokerError as error:
            raise InvalidArgument(f"Message {number} of the part: {error.message}") from error


def too_many_messages(count: str) -> InvalidArgument:
    return InvalidArgument(f"The part has {count} messages, the maximum is {MAX_MESSAGES:,}.")


def _check_schema_words(message: NewMessage) -> None:
    """What a topic's schema has said may be kept, and is no longer than what a publisher may say."""
    for key in SCHEMA_KEYS:
        if len(message.attributes.get(key, "").encode()) > MAX_ATTRIBUTE_VALUE_BYTES:
            raise InvalidArgument(
                f"attributes[{key!r}] is too long: the maximum is {MAX_ATTRIBUTE_VALUE_BYTES} bytes."
            )


def without_schema(message: NewMessage) -> NewMessage:
    """Without what a topic's schema has said of it, which the next topic's says anew."""
    if message.attributes.keys().isdisjoint(SCHEMA_KEYS):
        return message
    attributes = {key: value for key, value in message.attributes.items() if key not in SCHEMA_KEYS}
    return NewMessage(data=message.data, attributes=attributes, ordering_key=message.ordering_key)
