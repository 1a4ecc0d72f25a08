"""Passthrough fields: JSON in a protobuf field with a number of our own, for values that Google's messages have no
field for.

REST shows it by its name.  Over gRPC it is an unknown field for Google's clients, which do not show it but send it
back.  So a client that reads a resource, changes something else and writes it loses nothing.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from google.protobuf.unknown_fields import UnknownFieldSet

from broker.model.errors import InvalidArgument
from broker.model.preview import SAFEGUARDS

T = TypeVar("T")

NAMES: Mapping[str, str] = {  # names in JSON, by the name of the message
    "google.pubsub.v1.MessageTransform": "fields",
    "google.pubsub.v1.Topic": "extensions",
}

# Fields in the JSON of a message besides Google's fields and those of NAMES; gRPC has no place for them.
EXTENSION_FIELDS: Mapping[str, tuple[str, ...]] = {
    # `frozen`, `stats` and `pause` are output only: a client that sends back what it has read changes nothing.
    "google.pubsub.v1.Topic": ("frozen", "stats"),
    "google.pubsub.v1.Subscription": ("extensions", "pause"),
    "google.pubsub.v1.Schema": ("compatibility",),
    "google.pubsub.v1.PublishResponse": ("repeats",),
    "google.pubsub.v1.SeekRequest": ("undoable", *SAFEGUARDS),
    "google.iam.v1.TestIamPermissionsRequest": ("resources",),
    "google.iam.v1.TestIamPermissionsResponse": ("resources",),
    "google.pubsub.v1.SeekResponse": (
        "replayedMessages",
        "replayedMessagesAtLeast",
        "retainedSince",
        "notRetained",
        "undoSnapshot",
        "undoUntil",
    ),
}

_NUMBER = 100_001  # far from Google's own numbers
_TEXT = 2  # the wire type


def set_passthrough(message: Any, body: bytes) -> None:
    message.MergeFromString(_varint(_NUMBER << 3 | _TEXT) + _varint(len(body)) + body)


def passthrough(message: Any) -> bytes | None:
    """The last one counts, as in all of protobuf."""
    unknown: Any = UnknownFieldSet(message)  # its elements are not typed
    found = [each.data for each in unknown if each.field_number == _NUMBER]
    return found[-1] if found and isinstance(found[-1], bytes) else None


def decode_passthrough(decoder: msgspec.json.Decoder[T], said: bytes, where: str) -> T:
    """Returns the value of what a message carries.  Raises InvalidArgument that names the field within `where`."""
    try:
        return decoder.decode(said)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise InvalidArgument(f"Invalid value at '{where}{at.rstrip('`')}': {why}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"Invalid value at '{where}': {error}.") from None


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
