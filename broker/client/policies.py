"""Edits the bindings of a policy, as the API writes them.  Bindings with a condition stay as they are."""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def with_member(bindings: Sequence[Json], role: str, member: str) -> list[Json]:
    """Return the bindings with a role for a member; equal to `bindings` if it has the role."""
    if any(_is_plain(one, role) and member in one["members"] for one in bindings):
        return list(bindings)
    for at, one in enumerate(bindings):
        if _is_plain(one, role):
            return [*bindings[:at], {**one, "members": [*one["members"], member]}, *bindings[at + 1 :]]
    return [*bindings, {"role": role, "members": [member]}]


def without_member(bindings: Sequence[Json], role: str, member: str) -> list[Json]:
    """Return the bindings without a role of a member; equal to `bindings` if it does not have the role."""
    left = [
        {**one, "members": [each for each in one["members"] if each != member]} if _is_plain(one, role) else one
        for one in bindings
    ]
    return [one for one in left if one["members"]]


def _is_plain(binding: Json, role: str) -> bool:
    return binding["role"] == role and not binding.get("condition")
