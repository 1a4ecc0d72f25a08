"""Subscriber.Acknowledge and Subscriber.ModifyAckDeadline over gRPC."""

from broker.api.generated.messages import AcknowledgeRequest, ModifyAckDeadlineRequest
from broker.api.google.requests import resource_name
from broker.api.grpc.call import UnaryCall, allow, turn_to_read
from broker.api.grpc.requests import decode_request
from broker.api.peer import host_of
from broker.api.steps import LONG_BODY
from broker.core.acking.service import AcknowledgeService

EMPTY = b""


async def acknowledge(service: AcknowledgeService, call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(AcknowledgeRequest, body)
    subscription = resource_name(request.subscription, "subscriptions")
    await allow(call, subscription)
    if len(body) >= LONG_BODY:
        await turn_to_read(call, subscription, body)
    client = f"gRPC client {host_of(call.peer())}"
    await service.acknowledge(subscription, list(request.ack_ids), call.caller.member, client)
    return EMPTY


async def modify_ack_deadline(service: AcknowledgeService, call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(ModifyAckDeadlineRequest, body)
    subscription = resource_name(request.subscription, "subscriptions")
    await allow(call, subscription)
    if len(body) >= LONG_BODY:
        await turn_to_read(call, subscription, body)
    seconds = request.ack_deadline_seconds
    await service.modify_ack_deadline(subscription, list(request.ack_ids), seconds, call.caller.member)
    return EMPTY
