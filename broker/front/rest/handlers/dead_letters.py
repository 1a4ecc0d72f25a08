"""What a subscription has given up; an extension."""

from broker.front.rest.call import Call
from broker.front.rest.codec.dead_letters import decode_letters, groups_json, letters_json
from broker.front.rest.codec.resources import encode_resource


async def list_dead_letters(call: Call) -> bytes:
    page, trait = decode_letters(call.query)
    looking, hung_up = call.services.looking.dead_letters, call.exchange.hung_up
    if trait is None:
        return encode_resource(letters_json(await looking.list_dead_letters(call.name, page, hung_up=hung_up)))
    groups, found = await looking.group_dead_letters(call.name, page, trait, hung_up=hung_up)
    return encode_resource(groups_json(groups, found))
