"""Changing the filter of a subscription, an extension."""

from typing import Any

import msgspec

from broker.api import permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.resources.subscription_service import SubscriptionService
from broker.features.filters.change_service import FilterChangeService
from broker.model.filter_changes import FilterChange, FilterComparison
from broker.model.timestamps import format_timestamp
from broker.model.topic import DELETED_TOPIC


async def set_filter(service: FilterChangeService, subscriptions: SubscriptionService, call: Call) -> bytes:
    """A wider filter gets messages that the present one leaves out: the caller must be able to see them as well."""
    text, validate_only = decode_set_filter(call.body)
    if call.gate is not None:
        subscription = await subscriptions.get_subscription(call.name)
        if subscription.topic != DELETED_TOPIC:
            await call.gate.allow(call.caller, permissions.ATTACH, subscription.topic)
    call.is_preview = validate_only
    if validate_only:
        change = await service.preview(call.name, text)
    else:
        change = await service.set_filter(call.name, text, by=call.caller.member)
    return encode_resource(filter_change_json(change))


# --- JSON ---------------------------------------------------------------------------------------------------


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
