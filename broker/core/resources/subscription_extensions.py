"""Extensions and output-only fields of a subscription in JSON, for which Google's message has no fields."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from broker.api.rest.codec.requests import convert_json
from broker.core.resources.pause_rest import pause_json
from broker.model.api_json import body_type, from_json, to_json
from broker.model.push_config import fingerprint
from broker.model.subscription import NO_EXTENSIONS, Extensions, Subscription

# It includes the field itself, so that paths in errors begin with its name.
_FIELDS = msgspec.defstruct("SubscriptionFields", [("extensions", body_type(Extensions) | None, None)])


def decode_extensions(fields: Mapping[str, Any]) -> Extensions:
    """Returns the extensions that a subscription's JSON gives; absent ones are defaults.

    Raises InvalidArgument that names the field.
    """
    given = convert_json({"extensions": fields.get("extensions")}, _FIELDS)
    body = msgspec.to_builtins(given)["extensions"]
    return NO_EXTENSIONS if body is None else from_json(Extensions, body, "extensions")


def subscription_fields(subscription: Subscription) -> Mapping[str, Any]:
    """Returns the fields of a subscription's JSON that Google's message lacks."""
    extensions = _extensions_json(subscription.extensions)
    pause = {} if subscription.pause is None else {"pause": pause_json(subscription.pause)}
    return {**subscription.kept, **({"extensions": extensions} if extensions else {}), **pause}


def _extensions_json(extensions: Extensions) -> Mapping[str, Any]:
    """Returns the extensions that differ from their defaults; of secrets only the fingerprints."""
    if extensions == NO_EXTENSIONS:
        return {}
    push = extensions.push
    rate = push.messages_per_second
    shown = replace(
        push,
        messages_per_second=int(rate) if rate is not None and rate.is_integer() else rate,
        webhook_secrets=None,
        webhook_secret_fingerprints=tuple(map(fingerprint, push.webhook_secrets or ())),
    )
    printed: Mapping[str, Any] = to_json(replace(extensions, push=shown))
    return printed
