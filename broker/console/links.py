"""Links that the link templates of a project make for a message."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import quote

from broker.client.api import Json
from broker.client.words import leaf

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_TRACE_PARENTS = ("googclient_traceparent", "traceparent")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.DOTALL)


class Link(NamedTuple):
    text: str
    url: str


def links_of(templates: Sequence[Json], topic: str, message: Json, masked: Json | None) -> Sequence[Link]:
    """Return the links of the templates for whose placeholders the message has a value that is not masked."""
    hidden = (masked or {}).get("attributes", ())
    attributes = {name: value for name, value in message.get("attributes", {}).items() if name not in hidden}
    values = {f"attributes.{name}": value for name, value in attributes.items()}
    values |= {name: message[name] for name in ("messageId", "orderingKey", "publishTime") if name in message}
    values |= {"topic": leaf(topic), "project": topic.split("/")[1]}
    for name in _TRACE_PARENTS:
        match = _TRACE_PARENT.fullmatch(attributes.get(name, ""))
        if match is not None:
            values |= {"traceparent": attributes[name], "traceId": match[1]}
    links = []
    for template in templates:
        patterns = template.get("topics", [])
        if patterns and not any(_matches(leaf(topic), pattern) for pattern in patterns):
            continue
        wanted = _PLACEHOLDER.findall(template["url"])
        if all(values.get(name) for name in wanted) and template["url"].startswith(("https://", "http://")):
            url = _PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), template["url"])
            links.append(Link(template.get("title") or leaf(template["name"]), url))
    return links


def _matches(text: str, pattern: str) -> bool:
    return fnmatchcase(text, re.sub(r"([\[?])", r"[\1]", pattern))  # of its signs only `*` is special here
