"""The fields that are only kept, in the one form that both doors and the store have: protobuf's JSON, normalised.

They are Google's messages whatever door they come by, with their types, oneofs and enums; REST's clients may write
them in any spelling that protobuf's JSON mapping allows.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf import json_format

from broker.front.resources.updates import OUTPUT_ONLY


def kept_from_message(message: Any, fields: Collection[str]) -> dict[str, Any]:
    """Those of the `fields` that a Topic or Subscription has, by their JSON names, without what is output only.

    What is empty is as if it were absent.
    """
    kept = {}
    for field, value in message.ListFields():
        if field.name in fields:
            given = json_format.MessageToDict(_writable(value)) if field.message_type is not None else value
            if given:
                kept[field.json_name] = given
    return kept


def put_kept(message: Any, kept: Mapping[str, Any]) -> None:
    """Set the kept fields of a message.  What this version of protobuf does not take is left out."""
    for name, value in kept.items():
        with suppress(json_format.ParseError):
            json_format.ParseDict({name: value}, message, ignore_unknown_fields=True)


def _writable(message: Any) -> Any:
    """A copy without what is output only, in it and in the messages right below."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field, value in copy.ListFields():
        if field.name == OUTPUT_ONLY:
            copy.ClearField(OUTPUT_ONLY)
        elif field.message_type is not None and any(f.name == OUTPUT_ONLY for f in field.message_type.fields):
            value.ClearField(OUTPUT_ONLY)
    return copy
