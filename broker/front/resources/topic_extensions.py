"""A topic's extensions, as JSON in its message: Google's Topic has no field for them."""

from typing import Any

import msgspec

from broker.domain.deduplication import check_window
from broker.domain.errors import InvalidArgument
from broker.domain.plain import from_plain, in_api, to_plain
from broker.domain.priority import Priorities
from broker.domain.topic_extensions import NO_EXTENSIONS, TopicExtensions
from broker.front.resources.carried import carried, carry


class _Deduplication(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    window: str
    content: bool = False


class _Priorities(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    levels: int
    age: str | None = None
    weights: list[int] = []


class _Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    delay: bool = False
    shards: int | None = None
    deduplication: _Deduplication | None = None
    priorities: int | _Priorities | None = None
    expiry: bool = False


_FORM = in_api()
_decode = msgspec.json.Decoder(_Body).decode


def extensions_from(message: Any) -> TopicExtensions:
    """Raises InvalidArgument that names the field."""
    said = carried(message)
    if said is None:
        return NO_EXTENSIONS
    try:
        body = _decode(said)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise InvalidArgument(f"Invalid value at 'extensions{at.rstrip('`')}': {why}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"Invalid value at 'extensions': {error}.") from None
    given = msgspec.to_builtins(body)
    if isinstance(body.priorities, int):
        given["priorities"] = {"levels": body.priorities}
    extensions = from_plain(TopicExtensions, given, _FORM, "extensions")
    if extensions.deduplication is not None:
        check_window(extensions.deduplication.window)
    return extensions


def put_extensions(message: Any, extensions: TopicExtensions) -> None:
    """Nothing, if none is switched on.  Priorities are a number, if that is all that there is to say."""
    if extensions != NO_EXTENSIONS:
        body = to_plain(extensions, _FORM)
        known = extensions.priorities
        if known is not None and known == Priorities(known.levels):
            body["priorities"] = known.levels
        carry(message, msgspec.json.encode(body))
