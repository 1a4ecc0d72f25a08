"""Validating and testing message transforms; Google has these calls over REST alone."""

from collections.abc import Sequence
from typing import Any

import msgspec

from broker.api import permissions
from broker.api.generated import messages
from broker.api.google.transforms import transform_from
from broker.api.rest.call import Call
from broker.api.rest.codec.protobuf_json import fill
from broker.api.rest.codec.requests import decode_request, lone_surrogate
from broker.api.rest.codec.resources import encode_resource
from broker.features.transforms.sandbox.jobs import Ending
from broker.features.transforms.service import Step, TransformService, Trial
from broker.model.message import NewMessage, PubsubMessage
from broker.model.names import check_shape
from broker.model.transforms import FIELD, Transforms


async def validate(service: TransformService, call: Call) -> bytes:
    await service.validate_message_transform(call.name, decode_validate(call.body))
    return encode_resource({})


async def test(service: TransformService, call: Call) -> bytes:
    trial = decode_test(call.body)
    if call.gate is not None:  # whoever may see the messages may see what becomes of one
        if trial.topic:
            await call.gate.allow(call.caller, permissions.ATTACH, trial.topic)
        if trial.subscription:
            await call.gate.allow(call.caller, permissions.CONSUME, trial.subscription)
    return encode_resource(steps_json(await service.test_message_transforms(call.name, trial)))


# --- JSON ---------------------------------------------------------------------------------------------------


class ValidateMessageTransformRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_transform: dict[str, Any] = {}


class MessageTransforms(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_transforms: list[dict[str, Any]] = []


class TestMessageTransformsRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message: NewMessage | None = None
    message_transforms: MessageTransforms | None = None
    topic: str = ""
    subscription: str = ""
    message_id: str = ""


_validate = msgspec.json.Decoder(ValidateMessageTransformRequest)
_test = msgspec.json.Decoder(TestMessageTransformsRequest)


def decode_validate(body: bytes) -> Transforms:
    """The one to check.  Raises InvalidArgument."""
    return _transforms([decode_request(_validate, body).message_transform], "messageTransform")


def decode_test(body: bytes) -> Trial:
    """Raises InvalidArgument."""
    request = decode_request(_test, body)
    for name, collection in ((request.topic, "topics"), (request.subscription, "subscriptions")):
        if name:
            check_shape(name, collection)
    given = request.message_transforms
    return Trial(
        transforms=None if given is None else _transforms(given.message_transforms, FIELD),
        topic=request.topic,
        subscription=request.subscription,
        message=request.message,
        message_id=request.message_id,
    )


def _transforms(given: Sequence[dict[str, Any]], where: str) -> Transforms:
    made = []
    for index, each in enumerate(given):
        message = messages.MessageTransform()
        try:
            fill(message, each, f"{where}[{index}]")
        except UnicodeEncodeError:
            raise lone_surrogate() from None
        made.append(transform_from(message, f"{where}[{index}]"))
    return tuple(made)


def steps_json(steps: Sequence[Step]) -> dict[str, Any]:
    """google.pubsub.v1.TestMessageTransformsResponse."""
    return {"transformedMessages": [_step(step) for step in steps]} if steps else {}


def _step(step: Step) -> dict[str, Any]:
    if step.ending is Ending.DROPPED:
        return {"filteredMessage": {}}
    if step.ending is Ending.FAILED:
        return {"failedMessage": {"errorMessage": step.reason}}
    message = step.message
    return {
        "transformedMessage": PubsubMessage(
            message.data,
            None if message.attributes == "{}" else msgspec.Raw(message.attributes.encode()),
            message.message_id,
            message.publish_time,
            message.ordering_key,
        )
    }
