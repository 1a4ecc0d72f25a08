"""What Helm makes of the chart's templates, for the few forms that they keep to.

A form that is not known here is refused: the templates are to stay as simple as this.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"(\s*)\{\{-(.*?)\}\}|\{\{(.*?)\}\}", re.DOTALL)
_LOOP = re.compile(r"range \$(\w+), \$(\w+) := (\S+)")


def render(template: str, scope: Mapping[str, Any]) -> str:
    """`scope`: `Values` and `Release`, and variables of a loop."""
    text, rest = _render(_parts(template), 0, scope)
    assert rest == -1, "an {{ end }} too much"
    return text


def rendered(chart: Path, values: Mapping[str, Any], *, release: str) -> list[dict[str, Any]]:
    """The resources of a release."""
    scope = {"Values": values, "Release": {"Name": release, "Namespace": "somewhere"}}
    texts = [render(path.read_text(), scope) for path in sorted((chart / "templates").glob("*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def _parts(template: str) -> list[tuple[bool, str]]:
    """Whether it is an action, and its text."""
    parts: list[tuple[bool, str]] = []
    at = 0
    for found in _ACTION.finditer(template):
        parts += [(False, template[at : found.start()]), (True, (found[2] or found[3] or "").strip())]
        at = found.end()
    return [*parts, (False, template[at:])]


def _render(parts: list[tuple[bool, str]], at: int, scope: Mapping[str, Any]) -> tuple[str, int]:
    """Up to its {{ end }}: the text, and where that is; -1: at the end of all."""
    text = ""
    while at < len(parts):
        is_action, part = parts[at]
        at += 1
        if not is_action:
            text += part
        elif part == "end":
            return text, at
        elif part.startswith("if "):
            inner, at = _render(parts, at, scope)
            negated = part.removeprefix("if ").startswith("not ")
            text += inner if bool(_value(part.split()[-1], scope)) != negated else ""
        elif loop := _LOOP.fullmatch(part):
            for name, value in sorted(_value(loop[3], scope).items()):
                inner, end = _render(parts, at, {**scope, loop[1]: name, loop[2]: value})
                text += inner
            at = end
        else:
            text += _piped(part, scope)
    return text, -1


def _piped(action: str, scope: Mapping[str, Any]) -> str:
    first, *filters = [part.strip() for part in action.split("|")]
    is_yaml = first.startswith("toYaml ")
    value = _value(first.removeprefix("toYaml "), scope)
    text = yaml.safe_dump(value).rstrip() if is_yaml else str(value)
    for each in filters:
        match each.split():
            case ["quote"]:
                text = json.dumps(text)
            case ["sha256sum"]:
                text = hashlib.sha256(text.encode()).hexdigest()
            case ["nindent", spaces]:
                text = "".join(f"\n{' ' * int(spaces)}{line}" for line in text.splitlines())
            case _:
                raise ValueError(f"the chart uses {each!r}, which is not known here")
    return text


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    if not re.fullmatch(r"(\.|\$)\w+(\.\w+)*", path):
        raise ValueError(f"the chart uses {path!r}, which is not known here")
    value: Any = scope
    for name in path[1:].split("."):
        value = value[name]
    return value
