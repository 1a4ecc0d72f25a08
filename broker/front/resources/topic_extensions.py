"""A topic's extensions, as JSON in its message: Google's Topic has no field for them."""

from typing import Any

import msgspec

from broker.domain.errors import InvalidArgument
from broker.domain.topic_extensions import NO_EXTENSIONS, TopicExtensions
from broker.front.resources.carried import carried, carry


class _Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    delay: bool = False
    shards: int | None = None


_decode = msgspec.json.Decoder(_Body).decode


def extensions_from(message: Any) -> TopicExtensions:
    """Raises InvalidArgument that names the field."""
    said = carried(message)
    if said is None:
        return NO_EXTENSIONS
    try:
        body = _decode(said)
        return TopicExtensions(delay=body.delay, shards=body.shards)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise InvalidArgument(f"Invalid value at 'extensions{at.rstrip('`')}': {why}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"Invalid value at 'extensions': {error}.") from None


def put_extensions(message: Any, extensions: TopicExtensions) -> None:
    """Nothing, if none is switched on."""
    if extensions != NO_EXTENSIONS:
        carry(message, msgspec.json.encode(_Body(delay=extensions.delay, shards=extensions.shards)))
