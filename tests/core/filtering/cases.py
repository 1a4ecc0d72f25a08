"""Filters and what they do, written down: which are refused, and which of nine messages the others match.

The lists were worked out from Google's documentation, not with this broker's code.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_CASES: dict[str, Any] = json.loads(
    files("tests.core.filtering").joinpath("cases.json").read_text(encoding="utf-8")
)

MESSAGES: list[dict[str, str]] = _CASES["messages"]


@dataclass(frozen=True)
class Case:
    expression: str
    accepted: bool
    matches: list[int]

    def __str__(self) -> str:
        text = ascii(self.expression)
        return text if len(text) < 90 else text[:87] + "..."


CASES = [Case(**case) for case in _CASES["cases"]]
ACCEPTED = [case for case in CASES if case.accepted]
REFUSED = [case for case in CASES if not case.accepted]
