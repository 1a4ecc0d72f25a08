"""A project's settings."""

from typing import Any

import msgspec

from broker.front.rest.codec.requests import decode_request


class UpdateSettingsRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    event_topic: str | None = None


_update = msgspec.json.Decoder(UpdateSettingsRequest)


def decode_update_settings(body: bytes) -> UpdateSettingsRequest:
    """Raises InvalidArgument."""
    return decode_request(_update, body)


def settings_json(project: str, event_topic: str) -> dict[str, Any]:
    """Without an event topic there is no such field."""
    return {"name": f"{project}/settings"} | ({"eventTopic": event_topic} if event_topic else {})
