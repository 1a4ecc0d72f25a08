"""The columns of messages in tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from broker.client.output import Shown
from broker.client.words import body_text, pairs_text, short_time

PREVIEW = click.option(
    "--preview",
    metavar="BYTES",
    type=click.IntRange(0),
    help="Only so much of the data of each; default: all.",
)

_COLUMNS = ("id", "published", "key", "attributes", "data")


def message_row(message: Mapping[str, Any], entry: Mapping[str, Any] | None = None) -> list[str]:
    """`entry`: what a list has of the message, if that is more than the message itself."""
    return [
        str(message.get("messageId", "")),
        short_time(message.get("publishTime")),
        str(message.get("orderingKey", "")),
        pairs_text(message.get("attributes")),
        preview_text(message, entry),
    ]


def preview_text(message: Mapping[str, Any], entry: Mapping[str, Any] | None = None) -> str:
    """The data as text, and how long it is if that is not all of it."""
    size = (entry or message).get("dataSize", 0)
    shown = len(message.get("data", "")) * 3 // 4  # of base64
    text = body_text(message, is_cut=size > shown)
    return f"{text}… ({size:,} bytes)" if size > shown else text


def shown_messages(
    data: Any,
    rows: Sequence[Sequence[str]],
    *,
    nothing: str,
    more: Sequence[str] = (),
) -> Shown:
    """A table of messages; `more` are columns that each row has before those of the message itself."""
    columns = (*more, *_COLUMNS)
    return Shown(
        data=data,
        columns=columns,
        rows=rows,
        whole=(*more, "id", "published"),
        cut=("key", "attributes", "data"),
        minor=("published", "attributes", "key"),
        nothing=nothing,
    )


def message_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a message that is shown by itself, with its body as text."""
    rest = {name: value for name, value in message.items() if name != "data"}
    return rest | {"data": body_text(message)}


def message_line(message: Mapping[str, Any]) -> str:
    """Returns the line for a message of a stream.  On a terminal the caller shows as much of it as fits."""
    row = message_row(message)
    return "  ".join(text for text in row if text)
