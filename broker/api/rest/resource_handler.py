"""Runs calls about resources over REST: converts path, query and JSON to Google's request, and its response to
JSON.

The mapping is that of Google's APIs (google/api/http.proto).
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal

from broker.api.generated.messages import request_of
from broker.api.google.call import Answer, Handler, ResourceCall
from broker.api.rest.call import Call
from broker.api.rest.codec.protobuf_json import fill, fill_from_query, to_json
from broker.api.rest.codec.requests import decode_json, lone_surrogate
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import (
    preview_answer,
    safeguards_of_body,
    safeguards_of_query,
    without_safeguards,
)
from broker.model.errors import InvalidArgument
from broker.model.field_mask import parse_field_mask
from broker.model.preview import SAFEGUARDS, UNGUARDED, Safeguards

WHOLE = "*"

Safeguarded = Literal["query", "body"] | None


def resource_handler(
    method: str, handler: Handler, *, target: str, body: str | None, safeguarded: Safeguarded = None
) -> Callable[[Call], Awaitable[bytes]]:
    """The handler over REST of one of Google's methods about resources ("Publisher.CreateTopic").

    `target`: the path within the request to the name that the call's path has ("topic.name").  `body`: the field of
    the request that the JSON is, or WHOLE: the request itself; None: there is no body, and one that is sent is
    ignored.  Fields that are in neither may be in the query.  `safeguarded`: where a destructive call has the
    fields that ask for a preview and limit the action.
    """
    request_class = request_of(method)

    async def handle(call: Call) -> bytes:
        request = request_class()
        extension_fields: Mapping[str, Any] = {}
        fill_from_query(request, call.query)
        if body is not None:
            extension_fields = _read_body(request if body == WHOLE else getattr(request, body), call)
        safeguards = UNGUARDED
        if safeguarded is not None:
            extension_fields, safeguards = _read_safeguards(call, extension_fields, safeguarded, body)
        if "update_mask" in request.DESCRIPTOR.fields_by_name and not request.update_mask.paths:
            request.update_mask.paths.extend(parse_field_mask(call.update_mask or ""))
        _set_name(request, target, call.name)
        or_update = None if call.update_mask is None else parse_field_mask(call.update_mask)
        allowed = None
        if call.gate is not None:
            allowed = await call.gate.allow_request(
                call.caller, call.needs, request, or_update=or_update is not None
            )
        view = call.query.get("view", "")
        resource_call = ResourceCall(call.caller, extension_fields, or_update, allowed, safeguards, view)
        answer = await handler(resource_call, request)
        if answer.preview is not None:
            return await preview_answer(call, answer.preview)
        return answer_json(answer)

    return handle


def query_parameters(
    method: str, *, target: str, body: str | None, safeguarded: Safeguarded = None
) -> Collection[str]:
    """The parameters that the query of a method may have: fields of the request that are not in path or body.

    Where the body is the whole request, its fields may be in either.
    """
    fields = {field.name: field.json_name for field in request_of(method).DESCRIPTOR.fields}
    safeguards = SAFEGUARDS if safeguarded == "query" else ()
    return {*safeguards, *(json_name for name, json_name in fields.items() if name not in (target, body))}


def _read_safeguards(
    call: Call, extension_fields: Mapping[str, Any], safeguarded: Safeguarded, body: str | None
) -> tuple[Mapping[str, Any], Safeguards]:
    """The other extension fields, and the safeguards.  Raises InvalidArgument."""
    if safeguarded == "query":
        return extension_fields, safeguards_of_query(call)
    if body is None:  # Google's request is the path alone
        return extension_fields, safeguards_of_body(call.body)
    return without_safeguards(extension_fields)


def _read_body(message: Any, call: Call) -> Mapping[str, Any]:
    try:
        return fill(message, decode_json(call.body))
    except UnicodeEncodeError:
        raise lone_surrogate() from None


def _set_name(request: Any, path: str, name: str) -> None:
    """Sets the name of the resource from the path, so that the body need not have it.

    Raises InvalidArgument if the body has another name.
    """
    holder = request
    *parents, field = path.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    given = getattr(holder, field)
    if field == "name" and given and given != name:
        raise InvalidArgument(f"The name in the body ({given}) differs from the name in the path ({name}).")
    setattr(holder, field, name)


def answer_json(answer: Answer) -> bytes:
    """The response in JSON, with the fields that Google's message lacks."""
    body = to_json(answer.message)
    extension_fields = answer.extension_fields
    if extension_fields is not None and isinstance(answer.shown, list):
        for shown, item in zip(next(iter(body.values()), ()), answer.shown, strict=False):
            shown.update(extension_fields(item))
    elif extension_fields is not None:
        body |= extension_fields(answer.shown)
    return encode_resource(body)
