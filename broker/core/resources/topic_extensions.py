"""The extensions of a topic as JSON in its message, for which Google's Topic has no field."""

from typing import Any

import msgspec

from broker.api.google.passthrough import decode_passthrough, passthrough, set_passthrough
from broker.model.api_json import body_type, from_json, to_json
from broker.model.deduplication import check_window
from broker.model.topic_extensions import NO_EXTENSIONS, TopicExtensions

_DECODER = msgspec.json.Decoder(body_type(TopicExtensions))


def extensions_from(message: Any) -> TopicExtensions:
    """Raises InvalidArgument that names the field."""
    said = passthrough(message)
    if said is None:
        return NO_EXTENSIONS
    body = decode_passthrough(_DECODER, said, "extensions")
    extensions = from_json(TopicExtensions, msgspec.to_builtins(body), "extensions")
    if extensions.deduplication is not None:
        check_window(extensions.deduplication.window)
    return extensions


def put_extensions(message: Any, extensions: TopicExtensions) -> None:
    """Adds the extensions to a message, if any is switched on."""
    if extensions != NO_EXTENSIONS:
        set_passthrough(message, msgspec.json.encode(to_json(extensions)))
