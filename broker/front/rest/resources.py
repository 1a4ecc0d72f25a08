"""Calls about resources over REST: a path, a query and JSON become Google's request, its response JSON.

As HTTP is mapped to gRPC for Google's APIs (google/api/http.proto); front/resources/rpcs.py has the rows.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import singledispatch
from typing import Any

from broker.domain.errors import InvalidArgument
from broker.domain.field_mask import parse_field_mask
from broker.domain.replay import Replay
from broker.domain.schema import Schema
from broker.domain.snapshot import Snapshot
from broker.domain.subscription import Subscription
from broker.domain.timestamps import format_timestamp
from broker.domain.topic import Topic
from broker.front.generated.messages import request_of
from broker.front.resources.call import Answer, ResourceCall
from broker.front.resources.rpcs import WHOLE, Rpc
from broker.front.rest.call import Call
from broker.front.rest.codec.extensions import decode_extensions, extensions_json
from broker.front.rest.codec.freezes import freeze_json
from broker.front.rest.codec.pauses import pause_json
from broker.front.rest.codec.positions import replay_json
from broker.front.rest.codec.protobuf_json import fill, fill_from_query, to_json
from broker.front.rest.codec.requests import decode_json, lone_surrogate
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.schemas import decode_schema_options, schema_json
from broker.front.rest.codec.seeks import decode_undoable


def resource_handler(rpc: Rpc) -> Callable[[Call], Awaitable[bytes]]:
    """The handler of a method about resources."""
    request_class, body = request_of(rpc.name), rpc.body

    async def handle(call: Call) -> bytes:
        request = request_class()
        beside: Mapping[str, Any] = {}
        fill_from_query(request, call.query)
        if body is not None:
            beside = _read_body(request if body == WHOLE else getattr(request, body), call)
        if "update_mask" in request.DESCRIPTOR.fields_by_name and not request.update_mask.paths:
            request.update_mask.paths.extend(parse_field_mask(call.update_mask or ""))
        _set_name(request, rpc.target, call.name)
        or_update = None if call.update_mask is None else parse_field_mask(call.update_mask)
        allowed = None
        if call.gate is not None:
            changes = or_update is not None and rpc.name == "Subscriber.CreateSubscription"
            allowed = await call.gate.allow_request(call.caller, rpc.name, request, or_update=changes)
        resource_call = ResourceCall(
            call.services,
            call.caller,
            decode_extensions(beside),
            decode_schema_options(beside),
            or_update,
            allowed,
            decode_undoable(beside),
        )
        answer = await rpc.handler(resource_call, request)
        return answer_json(answer)

    return handle


def query_parameters(rpc: Rpc) -> Collection[str]:
    """The parameters that the query of a method may have: fields of the request that are not in path or body.

    Where the body is the whole request, its fields may be in either.
    """
    fields = {field.name: field.json_name for field in request_of(rpc.name).DESCRIPTOR.fields}
    upsert = {"updateMask"} if rpc.name == "Subscriber.CreateSubscription" else set()
    return {json_name for name, json_name in fields.items() if name not in (rpc.target, rpc.body)} | upsert


def _read_body(message: Any, call: Call) -> Mapping[str, Any]:
    try:
        return fill(message, decode_json(call.body))
    except UnicodeEncodeError:
        raise lone_surrogate() from None


def _set_name(request: Any, path: str, name: str) -> None:
    """What the path says, the body need not; raises InvalidArgument if it calls the resource by another name."""
    holder = request
    *parents, field = path.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    given = getattr(holder, field)
    if field == "name" and given and given != name:
        raise InvalidArgument(f"The name in the body ({given}) differs from the name in the path ({name}).")
    setattr(holder, field, name)


def answer_json(answer: Answer) -> bytes:
    """The response in JSON, with what Google's message has no place for."""
    body = to_json(answer.message)
    if isinstance(answer.shown, list):
        for shown, item in zip(next(iter(body.values()), ()), answer.shown, strict=False):
            shown.update(beside(item))
    else:
        body |= beside(answer.shown)
    return encode_resource(body)


@singledispatch
def beside(shown: object) -> Mapping[str, Any]:
    """Of a value of the domain: what its JSON has beyond Google's message."""
    return {}


@beside.register
def _(shown: Topic) -> Mapping[str, Any]:
    return {**shown.kept, **({} if shown.freeze is None else {"frozen": freeze_json(shown.freeze)})}


@beside.register
def _(shown: Subscription) -> Mapping[str, Any]:
    extensions = extensions_json(shown.extensions)
    pause = {} if shown.pause is None else {"pause": pause_json(shown.pause)}
    return {**shown.kept, **({"extensions": extensions} if extensions else {}), **pause}


@beside.register
def _(shown: Schema) -> Mapping[str, Any]:
    return schema_json(shown)


@beside.register
def _(shown: Snapshot) -> Mapping[str, Any]:
    return {"expireTime": format_timestamp(shown.expire_time)}  # protobuf leaves out milliseconds that are 0


@beside.register
def _(shown: Replay) -> Mapping[str, Any]:
    return replay_json(shown)
