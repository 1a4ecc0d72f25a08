"""System parameters: query parameters and headers that every call of Google's APIs accepts.

docs/decisions/0074-system-parameters.md lists all of them, and what the broker does with each.

https://cloud.google.com/apis/docs/system-parameters
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from google.protobuf.descriptor import Descriptor

from broker.api.generated.messages import response_of
from broker.api.google.response_masks import HEADER, Mask, partial_json, read_mask
from broker.model.errors import InvalidArgument
from broker.net.http1.head import Head

_METHOD_OVERRIDE = b"x-http-method-override"
_FORM = b"application/x-www-form-urlencoded"

MAX_PARAMETERS = 200  # of a query, which is parsed before the caller is authenticated

# Parameters whose values are lists separated by commas; if given several times, they are one list.
_LISTS = frozenset(("updateMask", "update_mask", "fields", "$fields", "keyTypes", "key_types"))
_INTEGER_ENUMS = "enum-encoding=int"  # $alt=json;enum-encoding=int, as Google's generated REST clients send it
_SWITCHES = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer that a caller asks for.

    `mask`: the fields; None: all.  `pretty`: with white space; None: as the broker prints it.  `enums_of`: the
    message whose enums are numbers; None: enums are names.
    """

    mask: Mask | None = None
    pretty: bool | None = None
    enums_of: Descriptor | None = None

    def of(self, answer: bytes) -> bytes:
        """The answer in this form."""
        if not answer:
            return answer  # it was sent in parts
        pretty = answer.startswith(b"{\n") if self.pretty is None else self.pretty
        value = partial_json(msgspec.json.decode(answer), self.mask)
        if self.enums_of is not None:
            _number_enums(value, self.enums_of)
        encoded = msgspec.json.encode(value)
        return msgspec.json.format(encoded, indent=2) + b"\n" if pretty else encoded

    def of_error(self, answer: bytes) -> bytes:
        """An error in this form: all of it is there whatever the mask says."""
        return msgspec.json.format(answer, indent=-1) if self.pretty is False else answer


PLAIN = AnswerForm()


class Said(NamedTuple):
    """The meaning of a request's headers: its method, and the mask of its answer.

    `query_in_body`: Google's client for Java sends a GET with its query in the body if the URL would be too long.
    The form of the answer is read from the URL and the headers alone.
    """

    method: str
    mask: str = ""
    query_in_body: bool = False


def read_headers(head: Head) -> Said:
    """Raises InvalidArgument where another method than POST is overridden: a GET must change nothing."""
    override = mask = b""
    for name, value in head.headers:
        if name == _METHOD_OVERRIDE:
            override = value
        elif name == HEADER:
            mask = value
    if not override:
        return Said(head.method, mask.decode("latin-1"))
    method = override.decode("latin-1").strip().upper()
    if head.method not in ("POST", method):
        raise InvalidArgument(
            f"X-HTTP-Method-Override is possible with POST alone, not with {head.method} "
            f"(X-HTTP-Method-Override={method[:20]})."
        )
    is_form = head.header(b"content-type").partition(b";")[0].strip() == _FORM
    return Said(method, mask.decode("latin-1"), is_form)


def read_query(query: bytes) -> Mapping[str, str]:
    """The parameters of a query; lists that are given in parts are joined.

    Raises InvalidArgument for any other parameter with two values.
    """
    if not query:
        return {}
    parameters: dict[str, str] = {}
    if query.count(b"&") >= MAX_PARAMETERS:
        raise InvalidArgument(
            f"A query has at most {MAX_PARAMETERS} parameters (this one has {query.count(b'&') + 1})."
        )
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="replace"):
        given = parameters.setdefault(name, value)
        if given is value or given == value:
            continue
        if name not in _LISTS:
            raise InvalidArgument(
                f"The query parameter {name[:100]} is given with two values ({given[:100]!r} and {value[:100]!r})."
            )
        parameters[name] = f"{given},{value}"
    return parameters


def read_answer_form(mask_header: str, query: Mapping[str, str], rpc: str) -> AnswerForm | None:
    """The form of the answer that a request asks for; None: it does not say.

    Raises InvalidArgument for what the broker does not have.
    """
    if not (query or mask_header):
        return None
    _refuse_callback(query)
    mask = _mask(query, mask_header, rpc)
    pretty = _switch(query, "prettyPrint")
    response = response_of(rpc) if _wants_integers(query) else None
    form = AnswerForm(mask, pretty, None if response is None else response.DESCRIPTOR)
    return None if form == PLAIN else form


def _parameter(query: Mapping[str, str], name: str) -> tuple[str, str]:
    """The spelling and the value of a parameter that may be written with a $."""
    spelling = f"${name}" if f"${name}" in query else name
    return spelling, query.get(spelling, "")


def _mask(query: Mapping[str, str], header: str, rpc: str) -> Mask | None:
    spelling, text = _parameter(query, "fields")
    return read_mask(text, rpc, source=spelling) if text else read_mask(header, rpc, source="X-Goog-FieldMask")


def _refuse_callback(query: Mapping[str, str]) -> None:
    spelling, callback = _parameter(query, "callback")
    if callback:
        raise InvalidArgument(
            f"JSONP is not supported ({spelling}={callback[:100]}); --cors-origins lets pages of other origins in."
        )


def _switch(query: Mapping[str, str], name: str) -> bool | None:
    spelling, text = _parameter(query, name)
    if text and text.lower() not in _SWITCHES:
        raise InvalidArgument(f"{spelling} must be true or false ({spelling}={text[:100]}).")
    return _SWITCHES[text.lower()] if text else None


def _wants_integers(query: Mapping[str, str]) -> bool:
    spelling, text = _parameter(query, "alt")
    format_, *options = text.lower().split(";")
    if format_ not in ("", "json") or not {*options} <= {"", _INTEGER_ENUMS}:
        raise InvalidArgument(
            f"{spelling} must be json or json;{_INTEGER_ENUMS}: the broker answers in JSON alone "
            f"({spelling}={text[:100]})."
        )
    return _INTEGER_ENUMS in options


def _number_enums(value: Any, message: Descriptor) -> None:
    """Replace the names of enums by their numbers, within the fields of a message in JSON."""
    if not isinstance(value, dict):
        return
    for field in message.fields:
        given = value.get(field.json_name)
        if given is None:
            continue
        if field.enum_type is not None:
            numbers = {each.name: each.number for each in field.enum_type.values}
            value[field.json_name] = (
                [numbers.get(each, each) for each in given] if field.is_repeated else numbers.get(given, given)
            )
        elif field.message_type is not None:
            for item in given if isinstance(given, list) else [given]:
                _number_enums(item, field.message_type)
