"""The JSON of a retained message, which filter tests, lists, tails and exports show."""

import msgspec

from broker.core.log.log_page import MatchedMessage
from broker.model.message import PubsubMessage
from broker.model.message_id import id_of
from broker.model.timestamps import format_timestamp


class ListedMessage(PubsubMessage, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A message in a list, which may have the beginning of its data alone; `data_size`: the length of all of it.
    `masked`: what the caller does not see of it (core/viewing), None: nothing.
    """

    data_size: int
    masked: msgspec.Struct | None = None


def matched_message(message: MatchedMessage) -> PubsubMessage:
    """google.pubsub.v1.PubsubMessage, without its data unless that was asked for: no filter sees it."""
    return PubsubMessage(
        data=message.data or b"",
        attributes=None if message.attributes == "{}" else msgspec.Raw(message.attributes.encode()),
        message_id=id_of(message.shard_id, message),
        publish_time=format_timestamp(message.publish_time),
        ordering_key=message.ordering_key or "",
    )
