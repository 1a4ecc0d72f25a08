"""Calls about resources over gRPC: Google's request in protobuf's encoding, and the response."""

from collections.abc import Awaitable, Callable, Sequence

from broker.api.generated.messages import request_of
from broker.api.google.call import Handler, ResourceCall
from broker.api.grpc.call import UnaryCall
from broker.api.grpc.requests import decode_request
from broker.core.backlog.seeking.replay import Replay
from broker.model.timestamps import format_timestamp


def resource_handler(name: str, handler: Handler) -> Callable[[UnaryCall, bytes], Awaitable[bytes]]:
    """The handler over gRPC of one of Google's methods about resources ("Publisher.CreateTopic")."""
    request_class = request_of(name)

    async def handle(call: UnaryCall, body: bytes) -> bytes:
        request = decode_request(request_class, body)
        allowed = None
        if call.gate is not None:
            allowed = await call.gate.allow_request(call.caller, call.needs, request)
        answer = await handler(ResourceCall(call.services, call.caller, allowed=allowed), request)
        if isinstance(answer.shown, Replay):
            call.trailers = _replay_trailers(answer.shown)
        return answer.message.SerializeToString()  # type: ignore[no-any-return]

    return handle


def _replay_trailers(replay: Replay) -> Sequence[tuple[bytes, bytes]]:
    """What a seek has brought about, as metadata behind the answer: Google's SeekResponse has no place for it."""
    trailers = [(b"broker-replayed-messages", str(replay.messages).encode())]
    if replay.at_least:
        trailers.append((b"broker-replayed-messages-at-least", b"true"))
    if replay.retained_since is not None:
        trailers.append((b"broker-retained-since", format_timestamp(replay.retained_since).encode()))
    if replay.not_retained:
        trailers.append((b"broker-not-retained", replay.not_retained.encode()))
    return trailers
