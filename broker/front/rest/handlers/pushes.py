"""How pushing goes, what failed, and stopping it for a while; extensions."""

from broker.front.rest.call import Call
from broker.front.rest.codec.lists import encode_list
from broker.front.rest.codec.pauses import decode_pause
from broker.front.rest.codec.pushes import (
    decode_push_failure_page,
    decode_test_push,
    push_failure_json,
    push_status_json,
    push_test_json,
)
from broker.front.rest.codec.resources import encode_resource


async def get_push_status(call: Call) -> bytes:
    return encode_resource(push_status_json(*await call.services.pushes.get_push_status(call.name)))


async def list_push_failures(call: Call) -> bytes:
    page = decode_push_failure_page(call.query)
    failures, token = await call.services.pushes.list_push_failures(call.name, page)
    return encode_list("pushFailures", [push_failure_json(failure) for failure in failures], token)


async def test_push(call: Call) -> bytes:
    test = await call.services.pushes.test_push(call.name, decode_test_push(call.body))
    return encode_resource(push_test_json(test))


async def pause_push(call: Call) -> bytes:
    await call.services.acting.pauses.pause(call.name, decode_pause(call.body), by=call.caller.member, pushed=True)
    return encode_resource({})


async def resume_push(call: Call) -> bytes:
    await call.services.acting.pauses.resume(call.name, by=call.caller.member, pushed=True)
    return encode_resource({})
