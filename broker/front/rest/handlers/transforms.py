"""Trying transforms."""

from broker.front.rest.call import Call
from broker.front.rest.codec.resources import encode_resource
from broker.front.rest.codec.transforms import decode_test, decode_validate, steps_json


async def validate(call: Call) -> bytes:
    await call.services.transforms.validate_message_transform(call.name, decode_validate(call.body))
    return encode_resource({})


async def test(call: Call) -> bytes:
    trial = decode_test(call.body)
    if call.gate is not None:  # whoever may see the messages may see what becomes of one
        if trial.topic:
            await call.gate.allow(call.caller, "ListTopicMessages", trial.topic)
        if trial.subscription:
            await call.gate.allow(call.caller, "ListSubscriptionMessages", trial.subscription)
    return encode_resource(steps_json(await call.services.transforms.test_message_transforms(call.name, trial)))
