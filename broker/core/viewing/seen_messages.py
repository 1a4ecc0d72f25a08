"""The JSON of messages as the caller sees them, which lists, tails and filter tests show."""

import msgspec

from broker.core.log.log_page import MatchedMessage
from broker.core.log.matched_message import ListedMessage
from broker.core.viewing.message_view import MessageView, Shown
from broker.model.message import PubsubMessage
from broker.model.message_id import id_of
from broker.model.timestamps import format_timestamp


async def listed_as_seen(view: MessageView, message: MatchedMessage, preview_bytes: int) -> ListedMessage:
    """A message of the log, with the first `preview_bytes` of its data."""
    shown = await view.show(message.attributes, message.data, message.data_size, preview_bytes)
    return ListedMessage(
        data=shown.data,
        attributes=raw_attributes(shown),
        message_id=id_of(message.shard_id, message),
        publish_time=format_timestamp(message.publish_time),
        ordering_key=message.ordering_key or "",
        data_size=message.data_size,
        masked=shown.masked,
    )


class SeenMessage(PubsubMessage, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A message without the size of its data."""

    masked: msgspec.Struct | None = None


async def matched_as_seen(view: MessageView, message: MatchedMessage, preview_bytes: int) -> SeenMessage:
    """A message that a filter matched, with the first `preview_bytes` of its data."""
    shown = await view.show(message.attributes, message.data, message.data_size, preview_bytes)
    return SeenMessage(
        data=shown.data,
        attributes=raw_attributes(shown),
        message_id=id_of(message.shard_id, message),
        publish_time=format_timestamp(message.publish_time),
        ordering_key=message.ordering_key or "",
        masked=shown.masked,
    )


def raw_attributes(shown: Shown) -> msgspec.Raw | None:
    """The attributes as JSON, None if there are none."""
    return None if shown.attributes == "{}" else msgspec.Raw(shown.attributes.encode())
