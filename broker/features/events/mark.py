"""Marks: notes about what was done to a system, such as a deployment, that callers make."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from broker.features.events.event_list import MARK
from broker.model.errors import InvalidArgument
from broker.model.resource_limits import check_labels
from broker.model.timestamps import format_timestamp

MAX_TEXT = 500  # characters


def check_mark(text: str, labels: Mapping[str, str]) -> None:
    """Raises InvalidArgument."""
    if not text.strip():
        raise InvalidArgument("Invalid value at 'text': a mark must have a text.")
    if len(text) > MAX_TEXT:
        raise InvalidArgument(f"Invalid value at 'text': it has {len(text)} characters; {MAX_TEXT} are the most.")
    if "\0" in text:
        raise InvalidArgument("Invalid value at 'text': it has the character U+0000.")
    check_labels(labels)


def mark_json(project: str, text: str, labels: Mapping[str, str], *, by: str, now: datetime) -> dict[str, Any]:
    """Returns the JSON of a mark, which is stored.  `by`: the principal that made it ("": nobody is known)."""
    body: dict[str, Any] = {"type": MARK, "project": project, "time": format_timestamp(now), "text": text}
    return body | ({"labels": dict(labels)} if labels else {}) | ({"createdBy": by} if by else {})
