"""Converts the schema settings of a topic from and to google.pubsub.v1.SchemaSettings."""

from typing import Any

from broker.api.generated import messages
from broker.model.schema_settings import SchemaSettings

_UNSPECIFIED = {"TYPE_UNSPECIFIED", "ENCODING_UNSPECIFIED"}


def settings_from(message: Any) -> SchemaSettings | None:
    """The settings of a google.pubsub.v1.SchemaSettings; None: it is empty."""
    if not message.ListFields():
        return None
    return SchemaSettings(
        schema=message.schema,
        encoding=encoding_of(message),
        first_revision_id=message.first_revision_id,
        last_revision_id=message.last_revision_id,
    )


def settings_message(settings: SchemaSettings) -> Any:
    message = messages.SchemaSettings(
        schema=settings.schema,
        first_revision_id=settings.first_revision_id,
        last_revision_id=settings.last_revision_id,
    )
    kinds = message.DESCRIPTOR.fields_by_name["encoding"].enum_type
    message.encoding = kinds.values_by_name[settings.encoding].number
    return message


def encoding_of(message: Any) -> str:
    """ "JSON" or "BINARY", as a message's field `encoding` says; "" if it says neither."""
    return enum_name(message, "encoding")


def enum_name(message: Any, field: str) -> str:
    """The name of an enum's value; "" for one that is unspecified or unknown."""
    value = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(getattr(message, field))
    return "" if value is None or value.name in _UNSPECIFIED else value.name
