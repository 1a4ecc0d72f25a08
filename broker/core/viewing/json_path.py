"""Paths to the fields of a JSON body that a masking rule hides: a part of JSONPath (RFC 9535).

A path is `$` and any number of steps:

    .name ['name'] ["name"]    the member of that name
    .* [*]                     every member of an object, every element of an array
    ..name ..*                 the same, at any depth

An array that a named step meets stands for its elements, as in filters: `$.items.price` is `$.items[*].price`.
"""

import re
from typing import NamedTuple

from broker.model.errors import InvalidArgument

MAX_PATH = 256  # characters
MAX_STEPS = 20

_NAME = r"[^\W\d][\w-]*"
_STEP = re.compile(
    rf"""(?: (?P<deep>\.\.) | (?P<dot>\.) | (?=\[) )
    (?: (?P<name>{_NAME}) | (?P<star>\*)
      | \[(?: (?P<any>\*) | '(?P<single>[^'\\\[\]]+)' | "(?P<double>[^"\\\[\]]+)" )\] )
    """,
    re.VERBOSE,
)


class Step(NamedTuple):
    """`name`: None is every member or element.  `deep`: at any depth."""

    name: str | None
    deep: bool = False


JsonPath = tuple[Step, ...]


def parse_json_path(text: str, field: str) -> JsonPath:
    """Raises InvalidArgument that names the field of the request, the path, and where it goes wrong."""
    if len(text) > MAX_PATH:
        raise InvalidArgument(f"{field} has {len(text)} characters, the maximum is {MAX_PATH}.")
    if not text.startswith("$"):
        raise _refusal(text, field, 0)
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or (match["dot"] and text[match.end("dot")] == "["):
            raise _refusal(text, field, at)
        name = match["name"] or match["single"] or match["double"]
        steps.append(Step(name, match["deep"] is not None))
        at = match.end()
    if len(steps) > MAX_STEPS:
        raise InvalidArgument(f"{field} has {len(steps)} steps, the maximum is {MAX_STEPS} ({field}={text}).")
    return tuple(steps)


def _refusal(text: str, field: str, at: int) -> InvalidArgument:
    return InvalidArgument(
        f"{field} must be a path such as $.card.number, $.items[*].price, $['e-mail'] or $..ssn; at character "
        f"{at + 1} there is no such step ({field}={text})."
    )
