"""Implements grpc.health.v1.Health: a process that answers is serving."""

import asyncio

from broker.api.generated.messages import HealthCheckRequest, HealthCheckResponse
from broker.api.grpc.call import StreamingCall, UnaryCall
from broker.api.grpc.requests import decode_request
from broker.model.errors import NotFound

SERVICES = ("", "google.pubsub.v1.Publisher", "google.pubsub.v1.Subscriber")

_SERVING = HealthCheckResponse(status="SERVING").SerializeToString()
_UNKNOWN = HealthCheckResponse(status="SERVICE_UNKNOWN").SerializeToString()


async def check(call: UnaryCall, request: bytes) -> bytes:
    service = decode_request(HealthCheckRequest, request).service
    if service not in SERVICES:
        raise NotFound(f"unknown service {service}")
    return _SERVING  # type: ignore[no-any-return]


async def watch(call: StreamingCall) -> None:
    """Says so once, and that it has ended by the end of the stream."""
    async for request in call.requests():
        service = decode_request(HealthCheckRequest, request).service
        await call.send(_SERVING if service in SERVICES else _UNKNOWN)
        await asyncio.get_running_loop().create_future()
