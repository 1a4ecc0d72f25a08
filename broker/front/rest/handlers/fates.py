"""What became of a message; an extension."""

from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec.fates import fates_json, timeline_json
from broker.front.rest.codec.lists import decode_page_parameters
from broker.front.rest.codec.resources import encode_resource


async def get_message(call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/messages/")
    return await _get(call, topic, message_id)


async def find_message(call: Call) -> bytes:
    project, _, message_id = call.name.rpartition("/messages/")
    topic = await call.services.looking.fates.topic_of(project, message_id)
    if call.gate is not None:  # the project's own permission does not tell of its topics' bodies
        await call.gate.allow(call.caller, "GetMessage", f"{topic}/messages/{message_id}")
    return await _get(call, topic, message_id)


async def get_subscription_message(call: Call) -> bytes:
    subscription, _, message_id = call.name.rpartition("/messages/")
    found = await call.services.looking.fates.get_timeline(subscription, message_id, hung_up=call.exchange.hung_up)
    return encode_resource(timeline_json(found))


async def _get(call: Call, topic: str, message_id: str) -> bytes:
    async def may_see(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, "GetPushStatus", name)

    found = await call.services.looking.fates.get_message(
        topic,
        message_id,
        parse_page(*decode_page_parameters(call.query)),
        may_see=may_see,
        hung_up=call.exchange.hung_up,
    )
    return encode_resource(fates_json(found))
