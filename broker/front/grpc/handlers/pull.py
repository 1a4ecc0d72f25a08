"""Subscriber.Pull."""

from functools import partial

from broker.domain.delivery import MAX_GRPC_RESPONSE_BYTES
from broker.front.generated.messages import PullRequest, PullResponse
from broker.front.grpc.call import UnaryCall, allow, in_steps
from broker.front.grpc.codec.pull import add_many_received, add_received
from broker.front.grpc.codec.requests import decode_request
from broker.front.peer import host_of
from broker.front.resources.requests import resource_name
from broker.front.steps import is_long


async def pull(call: UnaryCall, body: bytes) -> bytes:
    request = decode_request(PullRequest, body)
    name = resource_name(request.subscription, "subscriptions")
    await allow(call, "Subscriber.Pull", name)
    service = call.services.pull
    subscription, deliveries = await service.pull(
        name,
        max_messages=request.max_messages,
        return_immediately=request.return_immediately,
        max_bytes=MAX_GRPC_RESPONSE_BYTES,
        seconds_left=call.seconds_left(),
        principal=call.caller.member,
        address=host_of(call.peer()),
        hung_up=call.hung_up,
    )
    response = PullResponse()
    if deliveries:
        call.unless_sent(partial(service.release, subscription, deliveries))
        if is_long(deliveries):
            await in_steps(call, name, add_many_received(response, subscription, deliveries))
        else:
            add_received(response, subscription, deliveries)
    return response.SerializeToString()  # type: ignore[no-any-return]
