"""Masking rules: which attributes and which fields of JSON bodies callers without the permission do not see."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from broker.core.viewing.json_path import JsonPath
from broker.model.names import leaf, project_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingRule:
    """`name`: its resource name.

    It covers the topics and subscriptions of its project whose ids match one of the patterns, or all if it has
    none of either.  It hides the values of attributes whose names match one of `attributes`, and what is at
    `fields` in a JSON body.  In a pattern, `*` stands for any characters, or none.
    """

    name: str
    topics: Sequence[str] = ()
    subscriptions: Sequence[str] = ()
    attributes: Sequence[str] = ()
    fields: Sequence[JsonPath] = ()

    def covers(self, resource: str) -> bool:
        """Whether it is for a topic or subscription, by its full name."""
        if project_of(resource) != project_of(self.name):
            return False
        if not self.topics and not self.subscriptions:
            return True
        patterns = self.topics if "/topics/" in resource else self.subscriptions
        return matches_any(leaf(resource), patterns)


def matches_any(text: str, patterns: Sequence[str]) -> bool:
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(2_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Each piece is taken at its first place, which is right for `*` and needs no going back.
    first, *rest = (re.escape(piece) for piece in re.sub(r"\*+", "*", pattern).split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    found = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)
