"""List requests and responses of the extensions."""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_int32
from broker.model.errors import InvalidArgument
from broker.model.message_preview import WHOLE
from broker.model.page import check_page_size


def decode_page_parameters(query: Mapping[str, str]) -> tuple[int, str]:
    """Decodes pageSize (0 if absent) and pageToken, in either spelling.  Raises InvalidArgument."""
    size = query.get("pageSize", query.get("page_size", ""))
    token = query.get("pageToken", query.get("page_token", ""))
    return parse_int32(size, "pageSize") if size else 0, token


def decode_preview_bytes(query: Mapping[str, str], *, default: int = WHOLE) -> int:
    """Decodes previewBytes: how many bytes of the data of each message a list of messages shows.

    Raises InvalidArgument.
    """
    text = query.get("previewBytes", query.get("preview_bytes", ""))
    if not text:
        return default
    size = parse_int32(text, "previewBytes")
    if size < 0:
        raise InvalidArgument(f"previewBytes must not be negative (previewBytes={size}).")
    return size


def decode_list_size(query: Mapping[str, str]) -> int:
    """Decodes the size of a list that has no further pages.  Raises InvalidArgument."""
    return check_page_size(decode_page_parameters(query)[0])


def encode_list(key: str, items: Sequence[Any], next_page_token: str) -> bytes:
    """Encodes a list response; empty parts are left out."""
    body: dict[str, Any] = {key: items} if items else {}
    if next_page_token:
        body["nextPageToken"] = next_page_token
    return encode_resource(body)
