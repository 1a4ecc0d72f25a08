"""Runs calls about resources over gRPC: decodes Google's request from protobuf, and encodes the response."""

from collections.abc import Awaitable, Callable

from broker.api.generated.messages import request_of
from broker.api.google.call import Handler, ResourceCall
from broker.api.grpc.call import UnaryCall
from broker.api.grpc.requests import decode_request


def resource_handler(name: str, handler: Handler) -> Callable[[UnaryCall, bytes], Awaitable[bytes]]:
    """The handler over gRPC of one of Google's methods about resources ("Publisher.CreateTopic")."""
    request_class = request_of(name)

    async def handle(call: UnaryCall, body: bytes) -> bytes:
        request = decode_request(request_class, body)
        allowed = None
        if call.gate is not None:
            allowed = await call.gate.allow_request(call.caller, call.needs, request)
        answer = await handler(ResourceCall(call.caller, allowed=allowed), request)
        call.trailers = answer.trailers
        return answer.message.SerializeToString()  # type: ignore[no-any-return]

    return handle
