"""Messages as publishers send them."""

from typing import Any

from broker.domain.message import NewMessage


def new_messages(request: Any) -> list[NewMessage]:
    """The messages of a google.pubsub.v1.PublishRequest."""
    return [
        NewMessage(message.data, dict(message.attributes), None, None, message.ordering_key)
        for message in request.messages
    ]
