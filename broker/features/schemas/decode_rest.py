"""A message decoded by the schema of its topic; an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.resources import encode_resource
from broker.core.viewing.message_views import MessageViews
from broker.features.schemas.decode_service import DecodeService


async def decode_message(service: DecodeService, views: MessageViews, call: Call) -> bytes:
    topic, _, message_id = call.name.rpartition("/messages/")
    view = await views.of(call, topic)
    revision = call.query.get("revision", "")
    found = await service.decode(topic, message_id, revision, explain=not view.hides_fields)
    shown, masked = view.show_json(found.json)
    body: dict[str, Any] = {
        "messageId": message_id,
        "schema": found.revision.revision_name,
        "type": found.revision.type,
        "encoding": found.encoding,
        "dataSize": found.data_size,
        "decoded": msgspec.Raw(shown),
    }
    return encode_resource(body | ({} if masked is None else {"masked": masked}))
