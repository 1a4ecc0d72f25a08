"""The form in which `broker export` writes a resource: durations and bodies as people write them."""

from base64 import b64decode
from typing import Any

from broker.cli.client.api import Json
from broker.cli.client.declarations.form import DURATIONS, exported

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))
_MESSAGES = ("message", "template")


def written(resource: Json, collection: str, project: str) -> Json:
    """A resource as `broker apply` reads it."""
    body: Json = _written(exported(resource, collection, project), "")
    for name in _MESSAGES:
        if name in body:
            body[name] = _with_text(body[name])
    return body


def duration_as_written(duration: str) -> str:
    """The API's "604800s" as "7d": the largest unit that divides it."""
    text = duration.removesuffix("s")
    if not text.isdigit() or int(text) == 0:
        return duration
    seconds = int(text)
    return next((f"{seconds // size}{unit}" for unit, size in _UNITS if seconds % size == 0), duration)


def _written(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return {name: _written(part, f"{path}.{name}" if path else name) for name, part in value.items()}
    return duration_as_written(value) if path in DURATIONS and isinstance(value, str) else value


def _with_text(message: Json) -> Json:
    """A body that is text as `text`; any other stays `data`, in base64."""
    try:
        text = b64decode(message.get("data", "")).decode()
    except UnicodeDecodeError:
        return message
    if not text or not all(one.isprintable() or one == "\n" for one in text):
        return message
    return {"text": text} | {name: part for name, part in message.items() if name != "data"}
