"""SetFilter requests and responses; an extension."""

from typing import Any

import msgspec

from broker.domain.filter_changes import FilterChange, FilterComparison
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import decode_request


class SetFilterRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    filter: str
    validate_only: bool = False
    subscription: object = None  # in the path


_set_filter = msgspec.json.Decoder(SetFilterRequest)


def decode_set_filter(body: bytes) -> tuple[str, bool]:
    """The filter ("": none), and whether the change is only previewed.  Raises InvalidArgument."""
    request = decode_request(_set_filter, body)
    return request.filter, request.validate_only


def filter_change_json(change: FilterChange) -> dict[str, Any]:
    body: dict[str, Any] = {"filter": change.filter, "previousFilter": change.previous, "changed": change.is_change}
    if change.effective_time is not None:
        body["effectiveTime"] = format_timestamp(change.effective_time)
    return body | ({} if change.comparison is None else {"preview": _comparison(change.comparison)})


def _comparison(compared: FilterComparison) -> dict[str, int]:
    return {
        "scannedMessageCount": compared.scanned,
        "previouslyMatchedMessageCount": compared.before,
        "matchedMessageCount": compared.after,
        "newlyMatchedMessageCount": compared.after - compared.both,
        "noLongerMatchedMessageCount": compared.before - compared.both,
    }
