"""Changing the filter of a subscription; an extension."""

from broker.domain.topic import DELETED_TOPIC
from broker.front.rest.call import Call
from broker.front.rest.codec.filter_changes import decode_set_filter, filter_change_json
from broker.front.rest.codec.resources import encode_resource


async def set_filter(call: Call) -> bytes:
    """A wider filter gets messages that the present one leaves out: the caller must be able to see them as well."""
    text, validate_only = decode_set_filter(call.body)
    if call.gate is not None:
        subscription = await call.services.subscriptions.get_subscription(call.name)
        if subscription.topic != DELETED_TOPIC:
            await call.gate.allow(call.caller, "TestFilter", subscription.topic)
    changes = call.services.acting.filter_changes
    if validate_only:
        change = await changes.preview(call.name, text)
    else:
        change = await changes.set_filter(call.name, text, by=call.caller.member)
    return encode_resource(filter_change_json(change))
