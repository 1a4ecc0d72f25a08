"""Request bodies, by the rules of protobuf's JSON mapping.

Most clients send exactly what a struct declares, which msgspec decodes in one step.  The other forms of the mapping
(snake_case names, null for absent, numbers as strings, base64 of either alphabet and without padding) are decoded
by a second, slower decoder, which also describes errors in a body.
"""

import json
import re
import typing
from codecs import BOM_UTF8
from itertools import islice
from types import NoneType, UnionType
from typing import Any, TypeVar

import msgspec

from broker.model.errors import InvalidArgument

Request = TypeVar("Request", bound=msgspec.Struct)

# The limit of strings, brackets and commas in a body: 10 MB of {},{},… would be some hundred MB of objects.  The
# largest policy has 14,000; calls that may need more declare it.
MAX_TOKENS = 20_000
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[,]', re.DOTALL)  # one pass, whatever the input

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # a surrogate: half of a character, or an error
_MOST_SEARCHED = 100_000  # bytes

# A body nested deeper than Python's stack is a RecursionError in msgspec.
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_request(decoder: msgspec.json.Decoder[Request], body: bytes, *, max_tokens: int = MAX_TOKENS) -> Request:
    """The request in a body; an empty body is {}.  Raises InvalidArgument that names the field."""
    check_tokens(body, max_tokens)
    try:
        return decoder.decode(body or b"{}")
    except _MALFORMED:
        return _decode_leniently(decoder.type, body, max_tokens)


def check_tokens(body: bytes, most: int) -> None:
    """Raises InvalidArgument if a body would become far more objects than its request may have."""
    if len(body) <= most:
        return
    at_most = body.count(b'"') // 2 + body.count(b"{") + body.count(b"[") + body.count(b",")
    if at_most > most and sum(1 for _ in islice(_TOKEN.finditer(body), most + 1)) > most:
        raise InvalidArgument(
            f"Invalid JSON payload received. It has more than {most} strings, brackets and commas."
        )


def has_more_objects(body: bytes, most: int) -> bool:
    """Whether a body has more than so many JSON objects; none is made."""
    if body.count(b"{") <= most:
        return False
    objects = (token for token in _TOKEN.finditer(body) if token[0] == b"{")
    return sum(1 for _ in islice(objects, most + 1)) > most


def decode_json(body: bytes, max_tokens: int = MAX_TOKENS) -> Any:
    """The value in a body; an empty body is {}.  Raises InvalidArgument."""
    check_tokens(body, max_tokens)
    try:
        # RFC 8259, section 8.1: a byte order mark may be ignored. Editors and shells on Windows write one.
        return msgspec.json.decode(body.removeprefix(BOM_UTF8) or b"{}")
    except _MALFORMED as error:
        raise _surrogate_in(body) or InvalidArgument(
            f"Invalid JSON payload received. {_reason(body, error)}"
        ) from error


def _reason(body: bytes, error: Exception) -> str:
    """Why a body cannot be decoded.  The decoder counts a byte that is not UTF-8 from the start of its string."""
    if isinstance(error, UnicodeDecodeError):
        try:
            body.decode()
        except UnicodeDecodeError as found:
            return f"It is not UTF-8 (byte {found.start})."
    return str(error)


def _surrogate_in(body: bytes) -> InvalidArgument | None:
    """Returns the error for a body with a lone surrogate, which msgspec's errors do not explain; None: it has none.

    Of a large body it does not say where: the search would delay all other calls.
    """
    if not _SURROGATE.search(body):
        return None
    if len(body) > _MOST_SEARCHED:
        return lone_surrogate()
    try:
        left: list[tuple[str, Any]] = [("", json.loads(body))]
    except (ValueError, RecursionError):
        return None
    while left:
        where, value = left.pop()
        if isinstance(value, str) and not value.isprintable() and _is_broken(value):
            return InvalidArgument(f"Invalid value at '{where}': {value[:100]!r} has a lone surrogate.")
        if isinstance(value, list):
            left += [(f"{where}[{index}]", each) for index, each in enumerate(value)]
        if isinstance(value, dict):
            names = {key: key if key.isidentifier() else repr(key[:100]) for key in value}
            left += [(f"{where}.{names[key]}".lstrip("."), each) for key, each in value.items()]
            left += [(f"{where}: a name of it", key) for key in value]
    return None


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _decode_leniently(request_type: type[Request], body: bytes, max_tokens: int) -> Request:
    return convert_json(decode_json(body, max_tokens), request_type)


def convert_json(value: Any, request_type: type[Request]) -> Request:
    """The request in a JSON value.  Raises InvalidArgument that names the field."""
    try:
        return msgspec.convert(_normal(value, request_type, "$"), request_type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"Invalid JSON payload received. {error}") from error
    except UnicodeEncodeError as error:
        raise lone_surrogate() from error


def lone_surrogate() -> InvalidArgument:
    return InvalidArgument("Invalid JSON payload received. A text has a lone surrogate.")


def _normal(value: Any, wanted: Any, where: str) -> Any:
    """`value` with the spellings that `msgspec.convert` understands, guided by the type that is wanted."""
    if isinstance(wanted, UnionType):  # X | None: null was removed before
        (wanted,) = (member for member in wanted.__args__ if member is not NoneType)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _normal_object(value, wanted, where)
    if wanted is bytes and isinstance(value, str):
        text = value.replace("-", "+").replace("_", "/").rstrip("=")
        return text + "=" * (-len(text) % 4)
    arguments: tuple[Any, ...] = typing.get_args(wanted)
    if isinstance(value, list) and arguments:
        return [_normal(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, int | float) and not isinstance(value, bool) and wanted is str:
        return msgspec.json.encode(value).decode()
    if isinstance(value, dict) and len(arguments) == 2:
        return {key: _normal(item, arguments[1], f"{where}.{key}") for key, item in value.items()}
    return value


def _normal_object(value: Any, wanted: type[msgspec.Struct], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(f"Invalid value at '{where}': expected a JSON object.")
    fields = {field.name: field for field in msgspec.structs.fields(wanted)}
    fields |= {field.encode_name: field for field in fields.values()}
    normal: dict[str, Any] = {}
    for key, item in value.items():
        field = fields.get(key)
        if field is None:
            raise InvalidArgument(
                f"Invalid JSON payload received. Unknown name \"{key[:100]}\" at '{where}': Cannot find field."
            )
        if item is None:
            continue
        if field.encode_name in normal:
            raise InvalidArgument(f"Invalid value at '{where}': \"{key}\" is given in both spellings.")
        normal[field.encode_name] = _normal(item, field.type, f"{where}.{key}")
    return normal
