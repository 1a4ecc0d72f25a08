"""The Publisher service's topics."""

from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page, encode_list
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.topics import decode_topic, decode_update_topic, topic_json


async def create_topic(call: Call) -> bytes:
    topic = await call.services.topics.create_topic(decode_topic(call.body, call.name))
    return encode_resource(topic_json(topic))


async def get_topic(call: Call) -> bytes:
    return encode_resource(topic_json(await call.services.topics.get_topic(call.name)))


async def update_topic(call: Call) -> bytes:
    wanted, paths = decode_update_topic(call.body, call.name, call.update_mask)
    return encode_resource(topic_json(await call.services.topics.update_topic(wanted, paths)))


async def delete_topic(call: Call) -> bytes:
    await call.services.topics.delete_topic(call.name)
    return encode_resource({})


async def list_topics(call: Call) -> bytes:
    topics, token = await call.services.topics.list_topics(call.name, decode_page(call.query))
    return encode_list("topics", [topic_json(topic) for topic in topics], token)


async def list_topic_subscriptions(call: Call) -> bytes:
    names, token = await call.services.topics.list_topic_subscriptions(call.name, decode_page(call.query))
    return encode_list("subscriptions", names, token)


async def list_topic_snapshots(call: Call) -> bytes:
    names, token = await call.services.topics.list_topic_snapshots(call.name, decode_page(call.query))
    return encode_list("snapshots", names, token)
