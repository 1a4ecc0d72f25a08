"""The four kinds of settings of a project, and what each may have."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from broker.core.publishing.publishing_rules import SCHEDULE, check_limits
from broker.core.viewing.json_path import parse_json_path
from broker.core.viewing.masking_rule import MaskingRule
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.names import check_name, leaf
from broker.model.refusals import refuse_nul

MAX_RESOURCES = 200  # of one kind, in a project
MAX_TEXT = 1_000  # characters of a title or a description
MAX_PATTERNS = 50  # of one field of a masking rule
MAX_PATTERN = 256  # characters
MAX_PAGE = 500  # characters
MAX_QUERY = 30  # parameters of a view
MAX_QUERY_TEXT = 2_000  # characters of all of them
MAX_URL = 2_000  # characters
MAX_DATA = 262_144  # bytes of the data of a template

_PAGE = re.compile(r"[A-Za-z0-9\-_.~+%:@]+(?:/[A-Za-z0-9\-_.~+%:@]+)*")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PLACEHOLDERS = ("messageId", "orderingKey", "project", "publishTime", "topic", "traceparent", "traceId")
_ATTRIBUTE = "attributes."


class Settings(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The fields that a caller may set.  `name` and the times, which answers have, are accepted and ignored."""

    title: str = ""
    name: object = None
    create_time: object = None
    update_time: object = None
    etag: str = ""


class MaskingRuleSettings(Settings, rename="camel", forbid_unknown_fields=True, kw_only=True):
    topics: list[str] = []
    subscriptions: list[str] = []
    attributes: list[str] = []
    fields: list[str] = []


class SavedView(Settings, rename="camel", forbid_unknown_fields=True, kw_only=True):
    page: str = ""
    query: dict[str, str] = {}


class MessageTemplate(Settings, rename="camel", forbid_unknown_fields=True, kw_only=True):
    topic: str = ""
    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""


class LinkTemplate(Settings, rename="camel", forbid_unknown_fields=True, kw_only=True):
    url: str = ""
    topics: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`collection` is in paths and permissions, `noun` in the names of calls and in errors."""

    collection: str
    noun: str
    fields: type[Settings]
    check: Callable[[Any], None]

    @property
    def changeable(self) -> Sequence[str]:
        """The fields that an update may name, in snake_case."""
        output = {"name", "create_time", "update_time", "etag"}
        return [field.name for field in msgspec.structs.fields(self.fields) if field.name not in output]


def _check_masking_rule(rule: MaskingRuleSettings) -> None:
    """Raises InvalidArgument."""
    if not rule.attributes and not rule.fields:
        raise InvalidArgument("A masking rule needs attributes or fields: they say what it masks.")
    for name in ("topics", "subscriptions", "attributes"):
        _check_patterns(getattr(rule, name), name)
    _check_count(rule.fields, "fields")
    for index, path in enumerate(rule.fields):
        parse_json_path(path, f"fields[{index}]")


def _check_patterns(patterns: Sequence[str], field: str) -> None:
    _check_count(patterns, field)
    for index, pattern in enumerate(patterns):
        if not 0 < len(pattern) <= MAX_PATTERN:
            raise InvalidArgument(
                f"{field}[{index}] must have 1 to {MAX_PATTERN} characters (it has {len(pattern)})."
            )
        if field != "attributes" and "/" in pattern:
            raise InvalidArgument(
                f"{field}[{index}] is a pattern of ids, such as payments-*, not of names (it is {pattern})."
            )


def _check_count(values: Sequence[str], field: str) -> None:
    if len(values) > MAX_PATTERNS:
        raise InvalidArgument(f"{field} has {len(values)} entries, the maximum is {MAX_PATTERNS}.")


def _check_view(view: SavedView) -> None:
    """Raises InvalidArgument."""
    parts = view.page.split("/")
    if len(view.page) > MAX_PAGE or not _PAGE.fullmatch(view.page) or "." in parts or ".." in parts:
        raise InvalidArgument(
            f"page must be the path of a page below the project, such as subscriptions or topics/orders/messages, "
            f"with at most {MAX_PAGE} characters (page={view.page[:200]})."
        )
    if len(view.query) > MAX_QUERY:
        raise InvalidArgument(f"query has {len(view.query)} parameters, the maximum is {MAX_QUERY}.")
    size = sum(len(name) + len(value) for name, value in view.query.items())
    if size > MAX_QUERY_TEXT or "" in view.query:
        raise InvalidArgument(
            f"query must have at most {MAX_QUERY_TEXT} characters, and a name for each parameter (it has {size})."
        )


def _check_template(template: MessageTemplate) -> None:
    """Raises InvalidArgument."""
    check_name(template.topic, "topics")
    if len(template.data) > MAX_DATA:
        raise InvalidArgument(f"data has {len(template.data)} bytes, the maximum is {MAX_DATA}.")
    check_limits([NewMessage(template.data, template.attributes, ordering_key=template.ordering_key)], SCHEDULE)


def _check_link(link: LinkTemplate) -> None:
    """Raises InvalidArgument."""
    _check_patterns(link.topics, "topics")
    if not link.title:
        raise InvalidArgument("The field title is empty: it is the text of the link.")
    shown = f"(url={link.url[:200]})"
    if len(link.url) > MAX_URL:
        raise InvalidArgument(f"url has {len(link.url)} characters, the maximum is {MAX_URL} {shown}.")
    for name in _PLACEHOLDER.findall(link.url):
        if name not in PLACEHOLDERS and not (name.startswith(_ATTRIBUTE) and len(name) > len(_ATTRIBUTE)):
            raise InvalidArgument(
                f"url has the placeholder {{{name[:100]}}}; those that there are: {', '.join(PLACEHOLDERS)} and "
                f"attributes.NAME {shown}."
            )
    bare = _PLACEHOLDER.sub("x", link.url)
    scheme, _, rest = link.url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if (
        scheme not in ("http", "https")
        or not host
        or not _is_url(bare)
        or any(sign in host for sign in "{}@\\")
        or not all(33 <= ord(sign) < 127 and sign not in '{}"<>\\^`|' for sign in bare)
    ):
        raise InvalidArgument(
            "url must begin with https:// or http:// and a host without placeholders and user names; it has only "
            f"characters that URLs may have, and placeholders such as {{traceparent}} behind the host {shown}."
        )


def _is_url(text: str) -> bool:
    try:
        return bool(urlsplit(text).hostname) and urlsplit(text).port != 0
    except ValueError:
        return False


MASKING_RULE = Kind(
    collection="maskingRules", noun="MaskingRule", fields=MaskingRuleSettings, check=_check_masking_rule
)
SAVED_VIEW = Kind(collection="savedViews", noun="SavedView", fields=SavedView, check=_check_view)
MESSAGE_TEMPLATE = Kind(
    collection="messageTemplates", noun="MessageTemplate", fields=MessageTemplate, check=_check_template
)
LINK_TEMPLATE = Kind(collection="linkTemplates", noun="LinkTemplate", fields=LinkTemplate, check=_check_link)
KINDS: Mapping[str, Kind] = {
    kind.collection: kind for kind in (MASKING_RULE, SAVED_VIEW, MESSAGE_TEMPLATE, LINK_TEMPLATE)
}


def check_settings(kind: Kind, settings: Settings) -> None:
    """Raises InvalidArgument that names the field, the value and the rule."""
    refuse_nul(msgspec.to_builtins(settings), kind.noun)
    if len(settings.title) > MAX_TEXT:
        raise InvalidArgument(f"title has {len(settings.title)} characters, the maximum is {MAX_TEXT}.")
    kind.check(settings)


def masking_rule(name: str, definition: Mapping[str, Any]) -> MaskingRule:
    """The rule as it is applied.  Raises InvalidArgument for one that cannot be read."""
    stored = msgspec.convert(definition, MaskingRuleSettings)
    return MaskingRule(
        name=name,
        topics=tuple(stored.topics),
        subscriptions=tuple(stored.subscriptions),
        attributes=tuple(stored.attributes),
        fields=tuple(parse_json_path(path, leaf(name)) for path in stored.fields),
    )
