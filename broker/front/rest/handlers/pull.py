"""Subscriber.Pull."""

from broker.front.peer import host_of
from broker.front.rest.call import Call
from broker.front.rest.codec.pull import decode_pull, encode_large_pull_response, encode_pull_response
from broker.front.steps import is_long


async def pull(call: Call) -> bytes:
    request = decode_pull(call.body, call.query)
    subscription, deliveries = await call.services.pull.pull(
        call.name,
        max_messages=request.max_messages,
        return_immediately=request.return_immediately,
        seconds_left=call.seconds_left(),
        principal=call.caller.member,
        address=host_of(call.exchange.peer),
        hung_up=call.exchange.hung_up,
    )
    if is_long(deliveries):
        answer = await call.in_steps(encode_large_pull_response(subscription, deliveries))
    else:
        answer = encode_pull_response(subscription, deliveries)
    if deliveries and call.exchange.gone:
        await call.services.pull.release(subscription, deliveries)
    return answer
