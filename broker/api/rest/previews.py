"""The fields of destructive calls that ask for a preview and limit the action, and previews as JSON.

Google's messages have no such fields, so only REST calls have them.  Over gRPC a server ignores fields that it does
not know, and a caller who asks an older broker for a preview would get the action instead.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from broker.api.permissions import Need, Needs, On
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import convert_json, decode_json
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.query_parameters import snake_case
from broker.model.errors import InvalidArgument, PermissionDenied, Unauthenticated
from broker.model.preview import SAFEGUARDS, Preview, Reference, Referrer, Safeguards
from broker.model.timestamps import format_timestamp

_GET_SUBSCRIPTION = Needs(Need("pubsub.subscriptions.get"))
_LIST_SUBSCRIPTIONS = Needs(Need("pubsub.subscriptions.list", on=On.PROJECT))

# The permission to see the name of a resource that refers to another one.
_TO_SEE: Mapping[Referrer, Needs] = {
    Referrer.SUBSCRIPTION: _GET_SUBSCRIPTION,
    Referrer.DEAD_LETTER_POLICY: _GET_SUBSCRIPTION,
    Referrer.PUSH_TOKEN: _GET_SUBSCRIPTION,
    Referrer.SNAPSHOT: Needs(Need("pubsub.snapshots.get")),
    Referrer.TOPIC: Needs(Need("pubsub.topics.get")),
    Referrer.SCHEDULE: Needs(Need("pubsub.schedules.get", on=On.PROJECT)),
    Referrer.EVENTS: Needs(Need("pubsub.topics.list")),  # on the project, which has no other name
    Referrer.OPERATION: _LIST_SUBSCRIPTIONS,
    Referrer.KEY: Needs(Need("iam.serviceAccountKeys.list", on=On.ABOVE)),
    Referrer.POLICY: Needs(Need("resourcemanager.projects.getIamPolicy", on=On.PROJECT)),
    Referrer.API_KEY: Needs(Need("apikeys.keys.list", on=On.PROJECT)),
}


class SafeguardFields(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The fields that the request of a destructive call has in addition to its own."""

    validate_only: bool = False
    as_of: str = ""
    expected_count: int | None = None
    tolerance_percent: float | None = None

    def safeguards(self) -> Safeguards:
        """Raises InvalidArgument."""
        return Safeguards(
            validate_only=self.validate_only,
            as_of=parse_timestamp(self.as_of, "asOf") if self.as_of else None,
            expected_count=self.expected_count,
            tolerance_percent=self.tolerance_percent,
        )


class SafeguardedRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    """A request without other fields."""

    topic: object = None  # in the path
    subscription: object = None  # in the path
    name: object = None  # in the path


def safeguards_of_query(call: Call) -> Safeguards:
    """Decodes the fields of a DELETE, which are query parameters.  Raises InvalidArgument.

    The body of a DELETE is ignored, except that these fields are refused there.
    """
    names = {*SAFEGUARDS, *map(snake_case, SAFEGUARDS)}
    if misplaced := sorted(name for name in names if f'"{name}"'.encode() in call.body):
        raise InvalidArgument(f"{misplaced[0]} is a parameter of the query of a DELETE, and is in its body.")
    return _taken(call.query, names).safeguards()


def safeguards_of_body(body: bytes) -> Safeguards:
    """Decodes the body of a call without other fields.  Raises InvalidArgument."""
    return convert_json(decode_json(body), SafeguardedRequest).safeguards()


def without_safeguards(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], Safeguards]:
    """Splits the fields that Google's message lacks into the others and the safeguards.  Raises InvalidArgument."""
    rest = {name: value for name, value in fields.items() if name not in SAFEGUARDS}
    return rest, _taken(fields, SAFEGUARDS).safeguards()


def _taken(fields: Mapping[str, Any], names: Collection[str]) -> SafeguardFields:
    given = {name: value for name, value in fields.items() if name in names}
    return convert_json(given, SafeguardFields) if given else SafeguardFields()


async def done_or_preview(call: Call, preview: Preview | None) -> bytes:
    """Encodes the response of a call: empty if the action was made (`preview` is None), else the preview."""
    return encode_resource({}) if preview is None else await preview_answer(call, preview)


async def preview_answer(call: Call, preview: Preview) -> bytes:
    """Encodes the response of a call that asked only for a preview."""
    call.is_preview = True
    return encode_resource(await preview_json(call, preview))


async def preview_json(call: Call, preview: Preview) -> dict[str, Any]:
    """Encodes a preview, with the names of the referring resources that the caller may see."""
    shown = [each for each in preview.references if await _may_see(call, each)]
    body: dict[str, Any] = {
        "validateOnly": True,
        "asOf": format_timestamp(preview.time),
        "count": preview.count,
        "unit": preview.unit,
    }
    if preview.is_estimated:
        body["estimated"] = True
    if preview.losses:
        body["losses"] = dict(preview.losses)
    if preview.reference_count:
        body["referredToBy"] = [{"name": each.name, "kind": each.referrer} for each in shown]
        body["referenceCount"] = preview.reference_count
    return body


async def _may_see(call: Call, reference: Reference) -> bool:
    if call.gate is None:
        return True
    try:
        await call.gate.allow(call.caller, _TO_SEE[reference.referrer], reference.name)
    except (PermissionDenied, Unauthenticated):
        return False
    return True
